"""Every role at every route of the daemons as they run. The routes come from the daemons themselves, which log what they serve; whom
each is for, from the guide. A route that the guide does not have fails here, and so does one that is there no more."""

import json
import re
import uuid

import pytest

from attacker import JSON, OPERATOR, READER, TENANTS, Node, bearer, send
from stack import REPO, wait_for

MAY = {"open": {"operator", "tenant", "reader", "node"}, "public": {"operator", "tenant", "reader", "node"}, "reader": {"operator", "reader"}, "tenant": {"operator", "tenant"},
       "operator": {"operator"}, "node": {"node"}}
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
DAEMONS = {"orchestratord", "pool-managerd", "worker-orcd", "worker-adapterd"}
# What must not be done to a stack that other tests use, or would be done to nobody: tried only by who may not.
HARMFUL = {"/shutdown", "/v2/store/backup"}


def documented():
    rows = re.findall(r"^\| (\S+) \| (\w+) \| `(\S+)` \| (\w+) \|$", (REPO / "docs/guide/access.md").read_text(), re.M)
    return {(daemon, method, path): scope for daemon, method, path, scope in rows}


def served(log):
    """{(daemon, method, path): scope} of the newest listener in a log."""
    lines = [json.loads(line) for line in log.splitlines() if '"http.routes"' in line]
    entries = [(line["listener"], *route.split(" ")) for line in lines[-1:] for route in line["routes"].split(", ")]
    return {(daemon, method, path): scope for daemon, method, path, scope in entries}


@pytest.fixture(scope="module")
def routes(guarded_stack):
    for model in ("demo", "tale"):  # a worker of each kind
        guarded_stack.wait_terminal(guarded_stack.submit(model=model, max_tokens=1)["job_id"])
    logs = [guarded_stack.log("orchestratord"), guarded_stack.log("pool-managerd")]
    logs += [path.read_text() for path in guarded_stack.dir.rglob("worker-*.log")]
    return {key: scope for log in logs for key, scope in served(log).items()}


def test_the_guide_has_the_routes_that_there_are(routes):
    assert routes == documented()
    assert {daemon for daemon, _, _ in routes} == DAEMONS


def tokens_at(stack, daemon):
    """(role, token) of those that a daemon knows, and tokens that it does not."""
    node = Node(stack.credential_file.read_text())
    tenant = TENANTS["alice"]
    worker = [("operator", node.control)], [OPERATOR, tenant, READER, node.token, node.worker]
    return {"orchestratord": ([("operator", OPERATOR), ("tenant", tenant), ("reader", READER), ("node", node.token)],
                              [node.control, node.worker]),
            "pool-managerd": ([("operator", OPERATOR), ("operator", node.control), ("reader", READER), ("node", node.worker)],
                              [tenant, node.token]),
            "worker-orcd": worker, "worker-adapterd": worker}[daemon]


def url_of(stack, daemon):
    def worker(of_engine):
        return next(w["uri"] for w in stack.workers()
                    if w["status"] in ("ready", "busy") and w["model_ref"].startswith("engine:") == of_engine)

    return {"orchestratord": lambda: stack.url, "pool-managerd": lambda: stack.pool_url,
            "worker-orcd": lambda: worker(False), "worker-adapterd": lambda: worker(True)}[daemon]()


def probe(stack, daemon, method, path, token=None):
    """A request that passes every check but the one of roles, and then names nothing that there is."""
    path = re.sub(r"{\w+}", str(uuid.uuid4()), path)
    headers = {**(bearer(token) if token else {}), **JSON}
    return send(url_of(stack, daemon), method, path, "{" if method in ("POST", "PUT", "PATCH") else None, headers)


def test_every_role_at_every_route(guarded_stack, routes):
    """HME-042 ORCH-3279: who may not is told so before anything else is looked at; who may gets whatever the route answers."""
    counted = 0
    for (daemon, method, path), scope in routes.items():
        known, strange = tokens_at(guarded_stack, daemon)
        for token in strange:
            assert probe(guarded_stack, daemon, method, path, token).code == "BAD_TOKEN", (daemon, method, path)
        for role, token in known:
            permitted = role in MAY[scope]
            if permitted and (path in HARMFUL or path.endswith("/events")):
                continue
            answer = probe(guarded_stack, daemon, method, path, token)
            counted += 1
            if permitted:  # a node may still be refused what is another node's
                assert answer.status != 401 and b'"scope"' not in answer.body, (daemon, method, path, role, answer.body)
            else:
                assert (answer.status, answer.code) == (403, "FORBIDDEN"), (daemon, method, path, role, answer.body)
                assert answer.envelope["details"] == {"scope": scope, "role": role}
    assert counted > 2 * len(routes)


def test_a_reader_reads_the_metrics_of_workers_at_their_pool(guarded_stack, routes):
    """A worker knows no reader's token. Its pool tells its series: those of each worker, of another system's engine too."""
    assert {"worker-orcd", "worker-adapterd"} <= {daemon for daemon, _, _ in routes}  # one of each kind is there
    told = send(guarded_stack.pool_url, "GET", "/metrics", headers=bearer(READER)).body.decode()
    for worker in guarded_stack.workers():
        assert send(worker["uri"], "GET", "/metrics", headers=bearer(READER)).code == "BAD_TOKEN"
        assert re.search(rf'^worker_slots{{[^}}]*worker_id="{worker["worker_id"]}"', told, re.M), worker
    assert told.count("# TYPE worker_slots gauge\n") == 1


def test_every_other_method_is_refused(guarded_stack, routes):
    """Nothing is served beside the routes: methods that a path does not take are 405 for the operator and 401 for nobody."""
    def matches(pattern, path):
        return re.fullmatch(re.sub(r"{\w+}", "[^/]+", pattern), path)

    for daemon, path in sorted({(daemon, path) for daemon, _, path in routes}):
        methods = {method for other, method, pattern in routes if other == daemon and matches(pattern, path)}
        taken = methods | ({"HEAD"} if "GET" in methods else set())
        is_open = routes.get((daemon, "GET", path)) == "open"
        for method in METHODS:
            refused = probe(guarded_stack, daemon, method, path).status == 401
            assert refused != (is_open and method in taken), (daemon, method, path)
            if method not in taken:
                answer = probe(guarded_stack, daemon, method, path, tokens_at(guarded_stack, daemon)[0][0][1])
                assert answer.status == 405, (daemon, method, path, answer.status)
                assert set(answer.headers["allow"].split(", ")) == taken


def test_a_wrong_token_is_refused_where_none_is_needed(open_stack):
    for headers in (bearer("x" * 40), {"Authorization": "Basic x"}, {"Authorization": ""}):
        for url in (open_stack.url, open_stack.pool_url):
            refused = send(url, "GET", "/health", headers=headers)
            assert (refused.status, refused.code) == (401, "BAD_TOKEN"), (url, headers)
    wait_for("the stack to serve", lambda: send(open_stack.url, "GET", "/v2/health").status == 200)


# Their clients cannot leave a token out.
@pytest.mark.parametrize("path", ["/v1/models", "/api/tags", "/slots"])
@pytest.mark.parametrize("field", ["Bearer ", "Bearer " + "x" * 40, ""])
def test_routes_of_other_apis_look_at_a_token_where_there_are_any(open_stack, guarded_stack, path, field):
    assert send(open_stack.url, "GET", path, headers={"Authorization": field}).status == 200
    assert send(guarded_stack.url, "GET", path, headers={"Authorization": field}).status == 401
