#pragma once
#include <string>

namespace llorch::base {

// "<version>+<first 12 hex digits of the executable's GNU build id>": a hash of the linked binary, so two equal strings
// mean the same machine code. Part of every receipt as engine_build.
std::string build_id();

// The packaged release that the running program belongs to, "<version>+<12 hex digits>" over the build ids of all its programs,
// from the file RELEASE beside it. Empty in a build tree, which is no release.
std::string release_id();

// What --version prints: the build id, and the release if it belongs to one.
std::string version_text();

}  // namespace llorch::base
