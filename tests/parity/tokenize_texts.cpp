// tokenize_texts DIRECTORY TEXTS OUT: what a tokenizer makes of each text of a JSON list, with special tokens added and parsed, as a
// JSON list of lists of ids. Driven by transformers/test_tokenizers.py.
#include <fmt/core.h>

#include <boost/json.hpp>
#include <fstream>
#include <string>

#include "base/file.h"
#include "engine/io/tokenizer_json/tokenizer_directory.h"
#include "text/tokenizer.h"

using namespace llorch;
namespace bj = boost::json;

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  auto data = engine::io::tokenizer_json::read_tokenizer_directory(argv[1]);
  const auto tokenizer = data ? text::Tokenizer::create(*std::move(data)) : tl::unexpected(data.error());
  const auto texts = base::read_file(argv[2], std::size_t{64} << 20);
  if (!tokenizer || !texts) {
    fmt::print(stderr, "{}\n", !tokenizer ? tokenizer.error().message : texts.error().message);
    return 1;
  }
  const bj::value parsed = bj::parse(*texts);
  bj::array all;
  for (const bj::value& text : parsed.as_array()) {
    bj::array ids;
    const auto tokens = tokenizer->encode(text.as_string(), {.add_special = true, .parse_special = true}).value();
    for (const base::TokenId id : tokens) ids.emplace_back(base::index(id));
    all.push_back(std::move(ids));
  }
  std::ofstream(argv[3]) << bj::serialize(all);
  return 0;
}
