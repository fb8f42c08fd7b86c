"""ML Metadata's gRPC service over its library. Run by the Python of `build.METADATA`: metadata_server.py PORT FILE WEB.

The upstream server is a C++ program in front of the same library; requests and responses pass as they are. At the port
WEB, the same calls come as gRPC-Web, which browsers speak, and for which KFP has Envoy.
"""

import sys
import threading
from collections.abc import Callable
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc  # type: ignore[import-not-found,import-untyped,unused-ignore]

Method = Callable[[Any, bytes], tuple[bytes, bytes, int]]
DATA, TRAILER = 0, 0x80
"""Kinds of frames in gRPC-Web: a byte for the kind, four for the length, then the content."""


def main(port: str, file: str, web_port: str) -> None:
    from ml_metadata.metadata_store.pywrap.metadata_store_extension import (  # type: ignore[import-not-found]
        metadata_store as library,
    )
    from ml_metadata.proto import metadata_store_pb2 as messages  # type: ignore[import-not-found]
    from ml_metadata.proto import metadata_store_service_pb2 as service_messages

    connection = messages.ConnectionConfig()
    connection.sqlite.filename_uri = file
    store = library.CreateMetadataStore(connection.SerializeToString(), messages.MigrationOptions().SerializeToString())
    lock = threading.Lock()
    statuses = {status.value[0]: status for status in grpc.StatusCode}

    def call(method: Method, request: bytes) -> tuple[bytes, str, int]:
        with lock:
            response, message, status = method(store, request)
        return response, message.decode("utf-8", errors="replace"), status

    def handler(method: Method) -> Any:
        def answer(request: bytes, context: Any) -> bytes:
            response, message, status = call(method, request)
            if status:
                context.abort(statuses[status], message)
            return response

        return grpc.unary_unary_rpc_method_handler(answer)  # without serializers: bytes as they are

    service = service_messages.DESCRIPTOR.services_by_name["MetadataStoreService"]
    methods = {one.name: getattr(library, one.name) for one in service.methods if hasattr(library, one.name)}
    handlers = {name: handler(method) for name, method in methods.items()}
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service.full_name, handlers)])
    server.add_insecure_port(f"0.0.0.0:{port}")
    server.start()

    class Web(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            framed = self.rfile.read(int(self.headers["Content-Length"]))
            method = methods[self.path.rpartition("/")[2]]
            response, message, status = call(method, framed[5 : 5 + int.from_bytes(framed[1:5], "big")])
            trailer = f"grpc-status:{status}\r\ngrpc-message:{message}\r\n".encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/grpc-web+proto")
            self.end_headers()
            for kind, content in ((DATA, response), (TRAILER, trailer)):
                self.wfile.write(bytes([kind]) + len(content).to_bytes(4, "big") + content)

        def log_message(self, *_: Any) -> None:
            """Nothing: a line for each call says too much."""

    ThreadingHTTPServer(("0.0.0.0", int(web_port)), Web).serve_forever()  # noqa: S104 - in a namespace of the test


if __name__ == "__main__":
    main(*sys.argv[1:])
