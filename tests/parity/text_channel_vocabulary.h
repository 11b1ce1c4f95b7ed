#pragma once
#include <string_view>

#include "text/tokenizer_data.h"

namespace llorch::tests::parity {

// The vocabulary in the bytes of a GGUF file in which every byte that was no part of well-formed UTF-8 has become
// U+FFFD. Strings survive that, lengths from 128 on and floats do not: a string of unknown length ends where the next
// length begins (no token holds a NUL), and an SPM score is -(place after the byte tokens), as trainers number them, but
// -1e9 for runs of spaces, which llama's training kept from merging (of -1e9f three bytes are ASCII and still there).
// Aborts on anything else: it reads test data, not users' files.
text::TokenizerData recover_text_channel_vocabulary(std::string_view file);

}  // namespace llorch::tests::parity
