"""A Beam worker on a machine of a cluster. A runner starts one for each of its own processes.

  python -m voxline.beam.worker --id=1-1 --provision_endpoint=localhost:40001

Beam's images have a Go program for that, which first unpacks staged packages. In our images the code is installed, so
the worker only asks for the runner's addresses and the pipeline's options.
"""

# Beam calls itself typed, and its workers are not:
# mypy: disable-error-code="no-untyped-call"
import argparse
import os
from collections.abc import Sequence

import grpc
from apache_beam.portability.api import beam_provision_api_pb2, beam_provision_api_pb2_grpc
from apache_beam.runners.worker import sdk_worker_main
from google.protobuf import json_format, text_format

from voxline.store.files import use_private_umask

PATIENCE_SECONDS = 60


def main(arguments: Sequence[str] | None = None) -> None:
    """Works until the runner closes the connection."""
    use_private_umask()
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--id", required=True)
    parser.add_argument("--provision_endpoint", required=True)
    options, _ = parser.parse_known_args(arguments)  # some runners pass the other addresses too
    with grpc.insecure_channel(options.provision_endpoint) as channel:
        ask = beam_provision_api_pb2_grpc.ProvisionServiceStub(channel).GetProvisionInfo
        request = beam_provision_api_pb2.GetProvisionInfoRequest()
        metadata = [("worker_id", options.id)]
        info = ask(request, metadata=metadata, timeout=PATIENCE_SECONDS, wait_for_ready=True).info
    os.environ.update(
        WORKER_ID=options.id,
        PIPELINE_OPTIONS=json_format.MessageToJson(info.pipeline_options),
        RUNNER_CAPABILITIES=" ".join(info.runner_capabilities),
        CONTROL_API_SERVICE_DESCRIPTOR=text_format.MessageToString(info.control_endpoint),
        LOGGING_API_SERVICE_DESCRIPTOR=text_format.MessageToString(info.logging_endpoint),
    )
    sdk_worker_main.main([])


if __name__ == "__main__":
    main()
