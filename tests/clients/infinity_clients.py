"""infinity's generated client."""

from common import BEST, QUESTION, TEXTS, same
from infinity_client import AuthenticatedClient
from infinity_client.api.default import health, models, rerank
from infinity_client.models import RerankInput


def run(checks, servers):
    client = AuthenticatedClient(base_url=servers.http, token=servers.token)

    def ranks():
        answer = rerank.sync(client=client, body=RerankInput(query=QUESTION, documents=TEXTS))
        same(answer.results[0].index, BEST)

    def is_well():
        assert health.sync_detailed(client=client).status_code == 200

    def lists_models():
        assert models.sync(client=client).data[0].id, "no model"

    for name, check in (("rerank", ranks), ("health", is_well), ("models", lists_models)):
        checks(f"infinity_client {name}", check)
