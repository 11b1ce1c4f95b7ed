#pragma once
#include <memory>

#include "text/formats/read/call_output.h"
#include "text/formats/syntax.h"
#include "text/formats/tools.h"

namespace llorch::text::formats {

// `tools` must outlive the reader.
std::unique_ptr<CallReader> make_reader(const CallSyntax& syntax, const Tools& tools);

}  // namespace llorch::text::formats
