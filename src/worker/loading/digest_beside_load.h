#pragma once
#include <filesystem>
#include <future>
#include <stop_token>
#include <string>

#include "base/result.h"
#include "engine/io/model_digest.h"

namespace llorch::worker::loading {

// The digest of a model that is being loaded, without the load having to wait for it: hashing a large model takes longer than
// loading it. Used by one thread.
class DigestBesideLoad {
 public:
  // Call before the first file of the model is opened. `known` counts only if its stamp is that of the files now; else
  // a thread hashes them. Errors: those of engine::io::model_stamp.
  static base::Result<DigestBesideLoad> start(const std::filesystem::path& model, engine::io::StampedDigest known);
  DigestBesideLoad(DigestBesideLoad&&) = default;
  DigestBesideLoad& operator=(DigestBesideLoad&&) = delete;
  ~DigestBesideLoad();  // ends the thread soon, also in the middle of a file

  // Returns the digest of the bytes that were loaded, in 64 hex digits. Call once, after the last file was read; waits
  // for the thread. Errors: those of engine::io::model_digest and model_stamp; IO_ERROR if a file changed since
  // start().
  base::Result<std::string> finish();
  // The digest if start() was told it, and until finish(), which confirms it; else empty.
  const std::string& known() const { return known_; }
  // The stamp of the files that the digest was computed of.
  const std::string& stamp() const { return stamp_; }

 private:
  DigestBesideLoad(std::filesystem::path model, std::string stamp);

  std::filesystem::path model_;
  std::string stamp_;
  std::string known_;
  std::stop_source stop_;
  std::future<base::Result<std::string>> digest_;  // its destructor waits
};

}  // namespace llorch::worker::loading
