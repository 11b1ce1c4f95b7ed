#pragma once
// What a stack says of itself, without the names that callers gave and without secrets.
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>

#include <boost/json/fwd.hpp>

namespace llorch::cli::bundle {

// Replaces ids of jobs, sessions and callers by pseudonyms ("job-1", "correlation-7"), one for each id, wherever it stands; hides
// what base::redact() hides; writes "~" for the user's home directory. Two passes: learn() all texts, then scrub() each. Ids are
// numbered in the order in which they were learnt, so pseudonyms are the same in all files of one bundle and mean nothing beside it.
// One owner; not thread-safe.
class Scrubber {
 public:
  // `home`: an absolute path, or empty.
  explicit Scrubber(std::string home);

  // Lines of JSON objects, one JSON document, or any other text, in which only UUIDs count as ids.
  void learn(std::string_view text);
  // `text` as learn() took it, line by line; a JSON document stays one. Member names, and the members of a log line that hold codes
  // (`event`, `level`, `component`, `ts`), are not touched.
  std::string scrub(std::string_view text);

 private:
  void learn_value(std::string_view key, const boost::json::value& value);
  void learn_id(std::string_view kind, std::string_view id);
  void scrub_value(std::string_view key, boost::json::value& value);
  std::string scrub_text(std::string_view text);
  std::string scrub_peer(std::string_view address);
  std::string scrub_line(std::string_view line);

  const std::string home_;
  std::unordered_map<std::string, std::string> pseudonyms_;  // by id
  std::map<std::string, int, std::less<>> count_;            // by kind
};

}  // namespace llorch::cli::bundle
