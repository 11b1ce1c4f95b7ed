#include <cstdio>

#include "base/descriptor_limit.h"
#include "worker/app.h"

int main(int argc, char** argv) {
  llorch::base::raise_descriptor_limit();
  const llorch::worker::ParsedOptions parsed = llorch::worker::parse_options(argc, argv);
  if (parsed.exit_code) {
    std::fputs(parsed.message.c_str(), *parsed.exit_code == 0 ? stdout : stderr);
    return *parsed.exit_code;
  }
  return llorch::worker::run(parsed.options);
}
