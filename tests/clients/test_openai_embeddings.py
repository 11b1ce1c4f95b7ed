"""The official OpenAI client at /v1/embeddings: what it reads is what was sent."""

import math

import pytest

openai = pytest.importorskip("openai", reason="PyPI openai is not installed (tools/clients)")

from embedding_model import DIMENSIONS, write_embedding_model  # noqa: E402
from stack import ALIAS, MODEL, Stack, wait_for  # noqa: E402

TEXTS = ["Once upon a time", "there was a fox"]


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    directory = tmp_path_factory.mktemp("models") / "tiny-embeddings"
    write_embedding_model(directory)
    with Stack({"models.aliases.embed": f"file:{directory}", "models.allowed_roots": f"{MODEL.parent},{directory.parent}"}) as stack:
        with openai.OpenAI(base_url=f"{stack.url}/v1", api_key="none", max_retries=0) as connected:
            def known():
                try:
                    return connected.embeddings.create(model="embed", input="x")
                except openai.APIStatusError as refused:
                    assert refused.status_code == 503, refused
                    return None

            wait_for("the model to be known", known)
            yield connected


def test_both_encodings_read_the_same(client):
    default = client.embeddings.create(model="embed", input=TEXTS)  # the client asks for base64 and decodes it
    floats = client.embeddings.create(model="embed", input=TEXTS, encoding_format="float")
    assert [item.index for item in default.data] == [0, 1] and len(default.data[0].embedding) == DIMENSIONS
    for ours, theirs in zip(default.data, floats.data):
        assert all(math.isclose(a, b, rel_tol=1e-7, abs_tol=1e-9) for a, b in zip(ours.embedding, theirs.embedding))
    assert default.usage.prompt_tokens == default.usage.total_tokens == sum(len(text) + 1 for text in TEXTS)
    for receipt in (default.llorch["receipt"], floats.llorch["receipt"]):
        receipt.pop("seed")  # drawn, and used for nothing
    assert default.llorch["receipt"] == floats.llorch["receipt"]


def test_fewer_dimensions(client):
    answer = client.embeddings.create(model="embed", input=TEXTS[0], dimensions=7, encoding_format="float")
    assert len(answer.data[0].embedding) == 7 and math.isclose(math.hypot(*answer.data[0].embedding), 1, rel_tol=1e-6)


def test_a_model_that_writes_makes_no_vectors(client):
    with pytest.raises(openai.BadRequestError) as refused:
        client.embeddings.create(model=ALIAS, input="x")
    assert refused.value.param == "workload"
