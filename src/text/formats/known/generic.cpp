#include "text/formats/known/known.h"

namespace llorch::text::formats {
namespace {

constexpr CallSyntax kGenericCalls[] = {{.open = "{", .is_bare = true}};

}  // namespace

// Of a model whose template teaches nothing, told by a prompt of the user how to write a call.
const Syntax kGenericSyntax{
    .format = Format::kGeneric,
    .name = "generic",
    .thought = kThinkTags,
    .calls = kGenericCalls,
    .spelling = {.open = "{\"name\": \"", .behind_name = "\", \"arguments\": ", .close = "}", .allows_several = false},
};

}  // namespace llorch::text::formats
