#include "base/descriptor_limit.h"

#include <sys/resource.h>

#include <limits>

namespace llorch::base {
namespace {

// Written once, before there are threads.
rlimit found{};
bool is_raised = false;

}  // namespace

void raise_descriptor_limit() {
  rlimit limit{};
  if (is_raised || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  found = limit;
  limit.rlim_cur = limit.rlim_max;
  is_raised = ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

std::size_t descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return std::numeric_limits<std::size_t>::max();
  return static_cast<std::size_t>(limit.rlim_cur);
}

void restore_descriptor_limit() {
  if (is_raised) ::setrlimit(RLIMIT_NOFILE, &found);
}

}  // namespace llorch::base
