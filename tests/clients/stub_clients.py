"""The stubs of rerankd.v1 and tei.v1, with this environment's protobuf and grpcio."""

import google.protobuf
import grpc
from common import BEST, QUESTION, TEXTS, same
from rerankd.v1 import rerank_pb2 as pb
from rerankd.v1 import rerank_pb2_grpc as rpc

SERVICE_CONFIG = '{"loadBalancingConfig": [{"round_robin": {}}]}'


def run(checks, servers):
    request = pb.RerankRequest(query=QUESTION, passages=[pb.Passage(id=f"p{at}", text=text) for at, text in enumerate(TEXTS)])
    metadata = [("authorization", f"Bearer {servers.token}")]

    def ask(target, options=()):
        with grpc.insecure_channel(target, options) as channel:
            return rpc.RerankServiceStub(channel).Rerank(request, metadata=metadata)

    def one_call():
        same(ask(servers.grpc).results[0].id, f"p{BEST}")

    def a_list_of_addresses():
        target = f"ipv4:{servers.grpc},{servers.grpc}"
        options = [("grpc.service_config", SERVICE_CONFIG), ("grpc.default_authority", "rerankd")]
        same(ask(target, options).results[0].id, f"p{BEST}")
        # Without the second option the call fails.
        try:
            ask(target, options[:1])
        except grpc.RpcError as error:
            same(error.code(), grpc.StatusCode.INTERNAL)
        else:
            raise AssertionError("the option is not needed any more")

    protobuf = google.protobuf.__version__
    checks(f"grpcio {grpc.__version__}, protobuf {protobuf}: the stubs", one_call)
    checks(f"grpcio {grpc.__version__}: a list of addresses", a_list_of_addresses)
