"""ML Metadata's gRPC service over its library. Run with the Python of `build.METADATA`: metadata_server.py PORT FILE.

The upstream server is a C++ program in front of the same library; requests and responses pass as they are.
"""

import sys
import threading
from collections.abc import Callable
from concurrent import futures
from typing import Any

import grpc  # type: ignore[import-not-found,import-untyped,unused-ignore]


def main(port: str, file: str) -> None:
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

    def handler(method: Callable[[Any, bytes], tuple[bytes, bytes, int]]) -> Any:
        def call(request: bytes, context: Any) -> bytes:
            with lock:
                response, message, status = method(store, request)
            if status:
                context.abort(statuses[status], message.decode("utf-8", errors="replace"))
            return response

        return grpc.unary_unary_rpc_method_handler(call)  # without serializers: bytes as they are

    service = service_messages.DESCRIPTOR.services_by_name["MetadataStoreService"]
    handlers = {one.name: handler(getattr(library, one.name)) for one in service.methods if hasattr(library, one.name)}
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service.full_name, handlers)])
    server.add_insecure_port(f"0.0.0.0:{port}")
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main(*sys.argv[1:])
