#include "wire/field.h"

#include <gtest/gtest.h>

namespace llorch::wire {

struct Counted {
  Counted() { ++made; }
  static inline int made = 0;
  std::string text;
};
template <>
struct Table<Counted> {
  static Fields fields() { return {required("text", &Counted::text)}; }
};

// A body of two bytes an element must not cost the memory of as many elements.
TEST(Arrays, NothingIsMadeOfWhatFollowsABadElement) {
  const bj::value array = bj::parse(R"([{"text":"a"},0,0,0])");
  std::vector<Counted> out;
  const auto read = Codec<std::vector<Counted>>::read(array, {}, {}, UnknownKeys::kRefuse, out);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().message, "[1] must be a JSON object");
  EXPECT_EQ(Counted::made, 2);
}

}  // namespace llorch::wire
