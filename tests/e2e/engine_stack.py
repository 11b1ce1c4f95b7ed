"""A stack whose configuration names engines of other systems."""

import json

from stack import Stack, wait_for


class EngineStack(Stack):
    def __init__(self, engines, aliases=None, **more):
        super().__init__(**more)
        self.config = self.dir / "config.yaml"
        self.config.write_text(json.dumps({"pool-managerd": {"engines": engines}}))
        self.env["LLORCH_CONFIG"] = str(self.config)
        for name in aliases or [engine["name"] for engine in engines]:
            self.settings[f"models.aliases.{name}"] = f"engine:{name}"

    def adapter(self):
        """The worker of an engine, once it is ready."""
        return wait_for("the engine's worker to be ready", lambda: next(
            (w for w in self.workers() if w["model_ref"].startswith("engine:") and w["status"] in ("ready", "busy")), None))


def entry(engine, name="tale", **more):
    """Of pool-managerd.engines, for a fake engine."""
    out = {"name": name, "engine": engine.kind, "endpoint": engine.url, "slots": 4, **more}
    if engine.kind != "llamacpp":
        out["model"] = engine.model
    return out
