#include "cli/declaration.h"

#include <boost/json.hpp>

namespace llorch::cli {
namespace {

namespace bj = boost::json;

bj::object declared(const CLI::Option& option) {
  bj::array names;
  for (const std::string& name : option.get_snames()) names.emplace_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.emplace_back("--" + name);
  const bool takes_value = option.get_items_expected_max() > 0;
  return {{"names", std::move(names)},
          {"positional", option.get_positional() ? option.get_name(true) : ""},
          {"description", option.get_description()},
          {"type", takes_value ? option.get_type_name() : ""},
          {"default", option.get_default_str()},
          {"required", option.get_required()},
          {"group", option.get_group()}};
}

bj::object declared(const CLI::App& app) {
  bj::array options, commands;
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_group().empty()) options.push_back(declared(*option));
  }
  for (const CLI::App* command : app.get_subcommands([](const CLI::App* c) { return !c->get_group().empty(); })) {
    commands.push_back(declared(*command));
  }
  return {{"name", app.get_name()},
          {"description", app.get_description()},
          {"options", std::move(options)},
          {"commands", std::move(commands)}};
}

}  // namespace

std::string declaration(const CLI::App& app) { return bj::serialize(declared(app)); }

}  // namespace llorch::cli
