#pragma once
// What a run of the matrix says, for programs, for people and for the record (SYS-10.4.1). Hashes and counts only: no
// prompt and no output.
#include <filesystem>
#include <functional>
#include <string>

#include "base/clock.h"
#include "base/entropy.h"
#include "base/result.h"
#include "cli/determinism/matrix.h"

namespace llorch::cli::determinism {

// What was checked, next to what the engine says of itself.
struct Subject {
  std::string model;         // the file's or directory's name, without its path
  std::string model_digest;  // "sha256:<hex>"
  std::string engine_build;
};

// One JSON object.
std::string report_json(const Subject& subject, const Report& report);
// "seed 1005 in batch 8: draw 3 gave another token".
std::string describe(const Mismatch& mismatch);

// Where a proof bundle goes: <root>/<type>/<run_id>.
struct ProofPlace {
  std::filesystem::path root;
  std::string type = "determinism";
  std::string run_id;
};
// $LLORCH_PROOF_DIR, else <component>/.proof_bundle; $LLORCH_RUN_ID, else the time and a random number.
// Errors: CONFIG_INVALID (a run id that is no identifier).
base::Result<ProofPlace> proof_place(const std::filesystem::path& component,
                                     const std::function<const char*(const char*)>& getenv, const base::Clock& clock,
                                     base::Entropy& entropy);

// seeds.ndjson, metadata.json, transcript.ndjson, timings.json, README.md. Returns the directory. Errors: IO_ERROR.
base::Result<std::filesystem::path> write_proof_bundle(const ProofPlace& place, const Subject& subject,
                                                       const Report& report);

}  // namespace llorch::cli::determinism
