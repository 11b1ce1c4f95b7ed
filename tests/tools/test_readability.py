"""How the guide reads: sentences of a length that one reads once, and actors that do things. What is counted is prose: no tables, code, headings."""

import re

WORDS_MAX = 45  # of a sentence
WORDS_MEAN_MAX = 20  # of a page's sentences
PASSIVE_SHARE_MAX = 0.40  # of a page's sentences

# What may be more for a reason: sentences by how they begin, shares by page.
LONG = {"cli.md": ("Options of code:",)}  # a list of options
PASSIVE = {}

IRREGULAR = ("begun|bound|brought|built|chosen|cut|done|drawn|fed|found|given|gone|held|hidden|kept|known|laid|left|lost|made|meant|met|paid|put|read|"
             "run|said|seen|sent|set|shown|spent|split|taken|told|thrown|torn|understood|written|withdrawn|taught|thought|spoken|spelled|sworn")
BE = r"(?:is|are|was|were|be|been|being|gets|get)"
PASSIVE_VERB = re.compile(rf"(?i)\b{BE}(?: (?:not|never|only|also|then|still|already|always|there|all|both|\w+ly))*\s+(?:\w+ed|{IRREGULAR})\b")


def prose(text):
    """Paragraphs and items of lists, each as one string."""
    text = re.sub(r"^```.*?^```$", "\n", text, flags=re.MULTILINE | re.DOTALL)
    parts, now = [], []
    for line in [*text.splitlines(), ""]:
        bare = line.strip()
        is_item = re.match(r"(?:[-*]|\d+\.) ", bare)
        if not bare or is_item or bare.startswith(("#", "|")) or line.startswith("    "):
            parts.append(" ".join(now))
            now = []
        if bare and not bare.startswith(("#", "|")) and not line.startswith("    "):
            now.append(re.sub(r"^(?:[-*]|\d+\.) ", "", bare))
    return [part for part in parts if part]


def sentences(text):
    found = []
    for part in prose(text):
        part = re.sub(r"`[^`]*`", "code", part)
        part = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", part).replace("**", "")
        part = re.sub(r"\b(e\.g|i\.e|vs|etc|No)\.", r"\1", part)
        found += [one.strip() for one in re.split(r"(?<=[.!?])\s+(?=[A-Z\"(*0-9]|(?:code|orchestratord|pool-managerd)\b)", part) if re.search(r"\w", one)]
    return found


def words(sentence):
    return re.findall(r"[\w'’-]+", sentence)


def test_it_counts_prose_alone():
    page = "# A heading of many words\n\nOne `llorch run x` here. Two [words](a.md)\nhere.\n\n- three is written\n- four\n\n    code that is indented\n\n" \
           "| a | table |\n|---|---|\n\n```sh\nmore code. And more.\n```\n"
    assert sentences(page) == ["One code here.", "Two words here.", "three is written", "four"]
    assert [bool(PASSIVE_VERB.search(s)) for s in ("It is not yet there.", "It was quickly written.", "Jobs are never lost.", "It runs.")] == [
        False, True, True, False]


def pages(repository):
    return sorted((repository / "docs/guide").glob("*.md"))


def test_no_sentence_of_the_guide_is_too_long(repository):
    long = [f"{page.name}: {len(words(s))} words: {s}" for page in pages(repository) for s in sentences(page.read_text(encoding="utf-8"))
            if len(words(s)) > WORDS_MAX and not s.startswith(LONG.get(page.name, ("\0",)))]
    assert long == []


def test_pages_of_the_guide_are_short_of_breath_and_active(repository):
    found = []
    for page in pages(repository):
        all_of_it = sentences(page.read_text(encoding="utf-8"))
        mean = sum(len(words(s)) for s in all_of_it) / len(all_of_it)
        passive = sum(bool(PASSIVE_VERB.search(s)) for s in all_of_it) / len(all_of_it)
        if mean > WORDS_MEAN_MAX:
            found.append(f"{page.name}: {mean:.1f} words a sentence")
        if passive > PASSIVE.get(page.name, PASSIVE_SHARE_MAX):
            found.append(f"{page.name}: {passive:.0%} of its sentences are passive")
    assert found == []


def test_every_page_begins_with_one_plain_sentence(repository):
    """Before any table, code or heading: what the page is for."""
    wrong = []
    for page in pages(repository):
        title, first = [line for line in page.read_text(encoding="utf-8").splitlines() if line.strip()][:2]
        if not title.startswith("# ") or re.match(r"[#|`>-]|    ", first) or len(words(sentences(f"{first}\n")[0])) > WORDS_MAX:
            wrong.append((page.name, first))
    assert wrong == []
