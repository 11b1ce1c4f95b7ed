// The OpenAPI file and the router say the same.
#include "orchestratord/http/routes.h"

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <cctype>
#include <filesystem>
#include <functional>
#include <set>

#include "base/error_code.h"

namespace llorch::orchestratord::http {
namespace {

const YAML::Node& document() {
  static const YAML::Node node =
      YAML::LoadFile(std::string(LLORCH_SOURCE_DIR) + "/contracts/openapi/orchestratord.yaml");
  return node;
}

bool is_method(const std::string& key) {
  return key == "get" || key == "post" || key == "delete" || key == "put" || key == "patch";
}

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

struct Operation {
  std::string name;
  YAML::Node node;
};
std::vector<Operation> operations() {
  std::vector<Operation> out;
  for (const auto& path : document()["paths"]) {
    for (const auto& entry : path.second) {
      const auto method = entry.first.as<std::string>();
      if (is_method(method)) out.push_back({upper(method) + " " + path.first.as<std::string>(), entry.second});
    }
  }
  return out;
}

// SYS-12.3: every served route is described, and nothing else is.
TEST(OpenApi, DescribesExactlyWhatIsServed) {
  const Context context;
  Api api(context);
  std::set<std::string> served, described;
  for (const Api::Route& route : api.routes())
    served.insert(std::string(route.method) + " " + std::string(route.pattern));
  for (const Operation& operation : operations()) described.insert(operation.name);
  EXPECT_EQ(served, described);
}

// ORCH-3096, OC-CTRL-2061: the version told by /v2/meta is the document's.
TEST(OpenApi, HasTheVersionOfTheApi) {
  EXPECT_EQ(document()["openapi"].as<std::string>().substr(0, 4), "3.1.");
  EXPECT_EQ(document()["info"]["version"].as<std::string>(), kApiVersion);
}

TEST(OpenApi, OperationIdsAreUniqueAndParametersComplete) {
  std::set<std::string> ids;
  for (const Operation& operation : operations()) {
    const auto id = operation.node["operationId"].as<std::string>("");
    EXPECT_FALSE(id.empty()) << operation.name;
    EXPECT_TRUE(ids.insert(id).second) << id;
    if (operation.name.find('{') != std::string::npos) {
      EXPECT_TRUE(operation.node["parameters"]) << operation.name << " does not declare its path parameter";
    }
    EXPECT_TRUE(operation.node["responses"]) << operation.name;
  }
}

// OC-CTRL-2067: data-plane operations carry examples.
TEST(OpenApi, DataPlaneOperationsCarryExamples) {
  for (const Operation& operation : operations()) {
    const auto about = [&](std::string_view path) { return operation.name.find(path) != std::string::npos; };
    if (!about("/v2/tasks") && !about("/v2/sessions")) continue;
    EXPECT_TRUE(operation.node["x-examples"] && operation.node["x-examples"].size() > 0) << operation.name;
  }
}

// SYS-5.5.1: every error code named for an operation is in the table, under the status it is named for.
TEST(OpenApi, ErrorCodesAreThoseOfTheTable) {
  int codes = 0;
  for (const Operation& operation : operations()) {
    for (const auto& response : operation.node["responses"]) {
      for (const auto& code : response.second["x-error-codes"]) {
        const auto known = base::error_code_from_name(code.as<std::string>());
        ASSERT_TRUE(known) << code.as<std::string>();
        EXPECT_EQ(std::to_string(base::info(*known).http_status), response.first.as<std::string>()) << operation.name;
        ++codes;
      }
    }
  }
  EXPECT_GT(codes, 20);
}

TEST(OpenApi, EveryReferenceResolves) {
  const std::function<void(const YAML::Node&)> walk = [&](const YAML::Node& node) {
    if (node.IsSequence()) {
      for (const auto& item : node) walk(item);
    }
    if (!node.IsMap()) return;
    for (const auto& entry : node) {
      if (entry.first.as<std::string>() != "$ref") {
        walk(entry.second);
        continue;
      }
      std::string pointer = entry.second.as<std::string>();
      if (pointer.starts_with("../schema/")) {
        const std::string file = std::string(LLORCH_SOURCE_DIR) + "/contracts/openapi/" + pointer;
        EXPECT_TRUE(std::filesystem::is_regular_file(file)) << pointer;
        continue;
      }
      ASSERT_TRUE(pointer.starts_with("#/")) << pointer;
      YAML::Node at = YAML::Clone(document());
      for (std::size_t begin = 2; begin < pointer.size();) {
        const std::size_t end = std::min(pointer.find('/', begin), pointer.size());
        at.reset(at[pointer.substr(begin, end - begin)]);
        begin = end + 1;
      }
      EXPECT_TRUE(at.IsDefined()) << pointer;
    }
  };
  walk(document());
}

}  // namespace
}  // namespace llorch::orchestratord::http
