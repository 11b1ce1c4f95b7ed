#include "cli/bundle/scrubber.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/json.hpp>
#include <utility>

#include "base/id.h"
#include "base/log.h"

namespace llorch::cli::bundle {
namespace {

namespace bj = boost::json;

// Members that hold an id of a job or of a caller, and what its pseudonym begins with.
constexpr std::pair<std::string_view, std::string_view> kIdMembers[] = {
    {"job_id", "job"},         {"task_id", "job"},    {"correlation_id", "correlation"}, {"trace_id", "trace"},
    {"session_id", "session"}, {"batch_id", "batch"}, {"response_id", "response"},       {"file_id", "file"},
};
// Codes of our own: a caller who names a job after one changes nothing here.
constexpr std::string_view kCodeMembers[] = {"v",          "ts",    "level", "component",
                                             "emitted_by", "event", "code",  "error_code"};
constexpr std::string_view kIdCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";

std::string_view kind_of_member(std::string_view key) {
  for (const auto& [name, kind] : kIdMembers) {
    if (name == key) return kind;
  }
  return {};
}

// Calls `visit(run, is_id)` for every stretch of `text`, in order: runs of the characters of ids, and what lies between.
template <class Visit>
void for_each_run(std::string_view text, Visit visit) {
  while (!text.empty()) {
    const bool is_id = kIdCharacters.find(text.front()) != std::string_view::npos;
    const std::size_t end = is_id ? text.find_first_not_of(kIdCharacters) : text.find_first_of(kIdCharacters);
    visit(text.substr(0, end), is_id);
    text.remove_prefix(std::min(end, text.size()));
  }
}

template <class Visit>
void for_each_line(std::string_view text, Visit visit) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    visit(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

}  // namespace

Scrubber::Scrubber(std::string home) : home_(home.size() > 1 ? std::move(home) : std::string()) {}

void Scrubber::learn(std::string_view text) {
  for_each_line(text, [this](std::string_view line) {
    boost::system::error_code broken;
    const bj::value value = bj::parse(line, broken);
    if (!broken) return learn_value({}, value);
    for_each_run(line, [this](std::string_view run, bool is_id) {
      if (is_id && base::is_uuid(run)) learn_id("id", run);
    });
  });
}

void Scrubber::learn_value(std::string_view key, const bj::value& value) {
  if (const bj::object* const object = value.if_object()) {
    for (const auto& member : *object) learn_value(member.key(), member.value());
  } else if (const bj::array* const array = value.if_array()) {
    for (const bj::value& item : *array) learn_value(key, item);
  } else if (const bj::string* const text = value.if_string()) {
    if (const std::string_view kind = kind_of_member(key); !kind.empty() && !text->empty()) {
      learn_id(kind, *text);
    }
  }
}

void Scrubber::learn_id(std::string_view kind, std::string_view id) {
  const auto [at, is_new] = pseudonyms_.try_emplace(std::string(id));
  if (!is_new) return;
  auto [count, _] = count_.try_emplace(std::string(kind), 0);
  at->second = fmt::format("{}-{}", kind, ++count->second);
  const std::string pseudonym = at->second;
  // The operator sees a tenant's ids behind its name; the tenant's own spelling may stand elsewhere.
  if (const std::size_t colon = id.rfind(':'); colon != std::string_view::npos && colon + 1 < id.size()) {
    pseudonyms_.try_emplace(std::string(id.substr(colon + 1)), pseudonym);
  }
}

std::string Scrubber::scrub(std::string_view text) {
  std::string out;
  for_each_line(text, [&](std::string_view line) {
    out += scrub_line(line);
    out += '\n';
  });
  return out;
}

std::string Scrubber::scrub_line(std::string_view line) {
  boost::system::error_code broken;
  bj::value value = bj::parse(line, broken);
  if (broken || !(value.is_object() || value.is_array())) return scrub_text(line);
  scrub_value({}, value);
  return bj::serialize(value);
}

void Scrubber::scrub_value(std::string_view key, bj::value& value) {
  if (bj::object* const object = value.if_object()) {
    for (auto& member : *object) scrub_value(member.key(), member.value());
  } else if (bj::array* const array = value.if_array()) {
    for (bj::value& item : *array) scrub_value(key, item);
  } else if (bj::string* const text = value.if_string()) {
    if (std::ranges::find(kCodeMembers, key) != std::end(kCodeMembers) || text->empty()) return;
    if (kind_of_member(key).empty()) {
      *text = key == "peer" ? scrub_peer(*text) : scrub_text(*text);
    } else {
      learn_id(kind_of_member(key), *text);  // a text that was not learnt
      *text = pseudonyms_.at(std::string(*text));
    }
  }
}

// The address of another machine is one of a person, perhaps; the port says nothing.
std::string Scrubber::scrub_peer(std::string_view address) {
  const std::string_view host = address.substr(0, address.rfind(':'));
  if (host.starts_with("127.") || host == "::1" || host == "[::1]") return std::string(host);
  learn_id("peer", host);
  return pseudonyms_.at(std::string(host));
}

std::string Scrubber::scrub_text(std::string_view text) {
  std::string shortened = base::redact(text);
  for (std::size_t at = 0; !home_.empty() && (at = shortened.find(home_, at)) != std::string::npos;) {
    shortened.replace(at, home_.size(), 1, '~');
  }
  std::string out;
  for_each_run(shortened, [&](std::string_view run, bool is_id) {
    const auto known = is_id ? pseudonyms_.find(std::string(run)) : pseudonyms_.end();
    if (known != pseudonyms_.end()) {
      out += known->second;
    } else if (is_id && base::is_uuid(run)) {
      learn_id("id", run);
      out += pseudonyms_.at(std::string(run));
    } else {
      out += run;
    }
  });
  return out;
}

}  // namespace llorch::cli::bundle
