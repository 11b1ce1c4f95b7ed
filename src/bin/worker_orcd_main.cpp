#include <cstdio>

#include "worker/app.h"

int main(int argc, char** argv) {
  const llorch::worker::ParsedOptions parsed = llorch::worker::parse_options(argc, argv);
  if (parsed.exit_code) {
    std::fputs(parsed.message.c_str(), *parsed.exit_code == 0 ? stdout : stderr);
    return *parsed.exit_code;
  }
  return llorch::worker::run(parsed.options);
}
