#include "grammar/json_schema/formats.h"

#include <algorithm>
#include <array>

namespace llorch::grammar::json_schema {
namespace {

struct Format {
  std::string_view name;
  std::string_view pattern;
};

// RFC 3339 appendix A. February has 28 days here: 29 would need the year.
#define LLORCH_DATE                                                                                                   \
  "[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-" \
  "9]|2[0-8]))"
#define LLORCH_TIME \
  "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+\\-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define LLORCH_BYTE "(?:[0-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5])"
#define LLORCH_LABEL "[A-Za-z0-9](?:[A-Za-z0-9\\-]{0,61}[A-Za-z0-9])?"

constexpr auto kFormats = std::to_array<Format>({
    {"date", "^" LLORCH_DATE "$"},
    {"date-time", "^" LLORCH_DATE "T" LLORCH_TIME "$"},
    {"email", "^[A-Za-z0-9_+\\-]+(?:\\.[A-Za-z0-9_+\\-]+)*@" LLORCH_LABEL "(?:\\." LLORCH_LABEL ")+$"},
    {"hostname", "^" LLORCH_LABEL "(?:\\." LLORCH_LABEL "){0,3}$"},  // below 254 bytes
    {"ipv4", "^(?:" LLORCH_BYTE "\\.){3}" LLORCH_BYTE "$"},
    {"ipv6", "^(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}$"},  // RFC 4291 §2.2, form 1
    {"time", "^" LLORCH_TIME "$"},
    {"uri",
     "^[a-z][a-z0-9+.\\-]*://[A-Za-z0-9.\\-]+(?::[0-9]{1,4})?(?:/"
     "[A-Za-z0-9._~\\-]*)*(?:\\?[A-Za-z0-9._~=&\\-]*)?(?:#[A-Za-z0-9._~\\-]*)?$"},
    {"uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"},
});

}  // namespace

std::optional<std::string> format_pattern(std::string_view name) {
  const auto it =
      std::find_if(kFormats.begin(), kFormats.end(), [&](const Format& format) { return format.name == name; });
  if (it == kFormats.end()) return std::nullopt;
  return std::string(it->pattern);
}

}  // namespace llorch::grammar::json_schema
