# Builds the same images by BuildKit, in parallel, with one timestamp on every file (buildx with a container driver).
#
#   export TAG=$(python -m voxline.pipelines.images tag)
#   REGISTRY=registry.example.org/voxline docker buildx bake -f docker/docker-bake.hcl --push all
#
# Your own base is part of the content, and therefore of the tag:
#
#   export BASE=python:3.12-slim-trixie@sha256:...
#   export TAG=$(python -m voxline.pipelines.images tag --base "$BASE")

variable "REGISTRY" { default = "voxline" }
variable "TAG" { default = "" }  # the content tag; never `latest`
variable "BASE" { default = "python:3.12-slim-trixie" }
variable "BUILDER" { default = "" }
variable "DATA_PLATFORMS" { default = "linux/amd64" }  # linux/amd64,linux/arm64: the other images lack wheels for arm64
variable "REVISION" { default = "unknown" }
variable "SOURCE" { default = "unknown" }
variable "SOURCE_DATE_EPOCH" { default = "1767225600" }

group "default" { targets = ["data", "model", "validate"] }
group "all" { targets = ["data", "model", "validate", "model-gpu", "model-tpu", "cli"] }

target "image" {
  name       = image
  matrix     = { image = ["data", "model", "validate", "model-gpu", "model-tpu", "cli"] }
  context    = "."
  dockerfile = "docker/Dockerfile"
  tags       = ["${REGISTRY}/${image}:${TAG}"]
  platforms  = equal(image, "data") ? split(",", DATA_PLATFORMS) : ["linux/amd64"]
  args = {
    IMAGE             = image
    BASE              = BASE
    BUILDER           = notequal(BUILDER, "") ? BUILDER : BASE
    REVISION          = REVISION
    SOURCE            = SOURCE
    VERSION           = TAG
    SOURCE_DATE_EPOCH = SOURCE_DATE_EPOCH
  }
  output = ["type=image,rewrite-timestamp=true"]
}
