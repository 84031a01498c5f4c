"""Rankings over HTTP with Ray Serve: serve run ray_serve:application target=HOST:PORT.

POST {"query": "...", "passages": ["..."]} to the address that Ray Serve prints. Without `target`, every replica
launches a server. Needs the package `ray[serve]`.
"""

from __future__ import annotations

from typing import Any

from ray import serve
from starlette.requests import Request
from starlette.responses import JSONResponse

from rerankd import AsyncRerankd, InvalidRequest, LocalServer, RerankdError


class Reranker:
    def __init__(self, target: str | None) -> None:
        if not target:
            self._server = LocalServer(settings={"generator.threads": 1})
            target = self._server.address
        self._client = AsyncRerankd(target)

    async def __call__(self, request: Request) -> JSONResponse:
        try:
            asked: dict[str, Any] = dict(await request.json())
            query, passages, top_n = asked.get("query", ""), asked.get("passages", []), asked.get("top_n", 0)
            ranking = await self._client.rerank(query, passages, top_n=top_n)
        except (InvalidRequest, TypeError, ValueError) as wrong:
            return JSONResponse({"error": str(wrong)}, status_code=400)
        except RerankdError as failed:
            return JSONResponse({"error": str(failed)}, status_code=503)
        return JSONResponse({"results": [{"index": result.index, "score": result.score} for result in ranking]})


def application(arguments: dict[str, str]) -> serve.Application:
    deployed = serve.deployment(num_replicas=2, ray_actor_options={"num_cpus": 1})(Reranker)
    return deployed.bind(arguments.get("target"))
