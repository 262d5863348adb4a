// cleave completion: prints a completion script for bash or zsh, generated from
// the flags of all commands.

#include "commands/Commands.h"

#include "cleave/Config/KeyNames.h"

#include <cctype>
#include <iostream>
#include <memory>

using namespace cleave;
using namespace cleave::driver;

namespace {

struct Flag {
  std::vector<std::string> names; // "-o", "--output"
  std::string help;
  std::vector<std::string> values; // where they are known
  bool takesKey = false;           // --set
  bool takesValue = false;
};

struct Target {
  std::string name, help;
  std::vector<Flag> flags;
  std::vector<Target> commands;
};

// Returns the words that the shell can complete for a flag with this type text.
// These are the alternatives in lower case, which the user types literally:
// "DIR|latest|auto" gives latest and auto.
std::vector<std::string> wordsOf(const std::string &type) {
  std::vector<std::string> words;
  for (size_t begin = 0; begin < type.size();) {
    size_t end = std::min(type.find('|', begin), type.size());
    std::string word = type.substr(begin, end - begin);
    bool typed = type.find('|') != std::string::npos && !word.empty();
    for (unsigned char c : word)
      typed = typed && (std::islower(c) || c == '-');
    if (typed)
      words.push_back(word);
    begin = end + 1;
  }
  return words;
}

std::string firstLine(const std::string &text) {
  return text.substr(0, text.find('\n'));
}

Target targetOf(const CLI::App &app) {
  Target target{app.get_name(), firstLine(app.get_description()), {}, {}};
  for (const CLI::Option *option : app.get_options()) {
    Flag flag;
    for (const std::string &name : option->get_snames())
      flag.names.push_back("-" + name);
    for (const std::string &name : option->get_lnames())
      flag.names.push_back("--" + name);
    if (flag.names.empty() || option->get_group().empty())
      continue; // positional, or hidden
    flag.help = firstLine(option->get_description());
    flag.takesValue = option->get_expected_min() > 0;
    flag.values = wordsOf(option->get_type_name());
    flag.takesKey = flag.names.back() == "--set";
    target.flags.push_back(std::move(flag));
  }
  for (const CLI::App *sub : app.get_subcommands({}))
    target.commands.push_back(targetOf(*sub));
  return target;
}

std::string joined(const std::vector<std::string> &words,
                   const char *separator) {
  std::string text;
  for (const std::string &word : words)
    text += (text.empty() ? "" : separator) + word;
  return text;
}

// Returns the text in single quotes, as a shell needs it.
std::string quoted(const std::string &text) {
  std::string result = "'";
  for (char c : text)
    if (c == '\'')
      result += "'\\''";
    else
      result += c;
  return result + "'";
}

// Returns the words that complete a key. Most end in "=", because a value
// follows: `train.lr=`. Others end in a dot, because a name that the user
// chooses follows: `mesh.`.
std::vector<std::string> keyWords() {
  std::vector<std::string> words = keyNames();
  for (std::string &word : words)
    if (!word.ends_with("."))
      word += "=";
  return words;
}

// Emits the arms of the shell's `case` that selects completions by command and
// previous word. `prefix` is the parent command, such as "cache ".
using Emit = void (*)(std::string &, const Target &);

void forEach(std::string &text, const Target &target, const std::string &prefix,
             Emit emit) {
  text += "  " + quoted(prefix) + ")\n";
  emit(text, target);
  text += "    ;;\n";
  for (const Target &command : target.commands)
    forEach(text, command, prefix + (prefix.empty() ? "" : " ") + command.name,
            emit);
}

//===----------------------------------------------------------------------===//
// bash
//===----------------------------------------------------------------------===//

void emitBash(std::string &text, const Target &target) {
  std::vector<std::string> flags, commands;
  for (const Flag &flag : target.flags)
    for (const std::string &name : flag.names)
      flags.push_back(name);
  for (const Target &command : target.commands)
    commands.push_back(command.name);
  text += "    flags=" + quoted(joined(flags, " ")) + "\n";
  text += "    commands=" + quoted(joined(commands, " ")) + "\n";
  std::string arms;
  for (const Flag &flag : target.flags)
    if (flag.takesKey)
      arms += "    " + joined(flag.names, "|") + ") keys=1 ;;\n";
    else if (flag.takesValue)
      arms += "    " + joined(flag.names, "|") +
              ") values=" + quoted(joined(flag.values, " ")) + " takes=1 ;;\n";
  if (!arms.empty())
    text += "    case $last in\n" + arms + "    esac\n";
}

// bash completes file names if the script offers nothing (-o default).
std::string bashScript(const Target &root) {
  std::vector<std::string> names;
  for (const Target &command : root.commands)
    names.push_back(command.name);
  std::string text =
      "# Completion of cleave for bash. Written by `cleave completion bash`.\n"
      "_cleave() {\n"
      "  local current=${COMP_WORDS[COMP_CWORD]} "
      "last=${COMP_WORDS[COMP_CWORD-1]}\n"
      "  local command= word flags= commands= values= takes= keys=\n"
      "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
      "    case \"$command/$word\" in\n"
      "    /-*) ;;\n";
  text += "    /" + joined(names, "|/") + ") command=$word ;;\n";
  for (const Target &command : root.commands)
    for (const Target &sub : command.commands)
      text += "    " + command.name + "/" + sub.name +
              ") command=" + quoted(command.name + " " + sub.name) + " ;;\n";
  text += "    esac\n"
          "  done\n"
          "  COMPREPLY=()\n"
          "  case $command in\n";
  forEach(text, root, "", emitBash);
  text += "  esac\n"
          "  if [ -n \"$keys\" ]; then\n"
          "    compopt -o nospace 2>/dev/null\n"
          "    values=" +
          quoted(joined(keyWords(), " ")) +
          "\n"
          "    COMPREPLY=($(compgen -W \"$values\" -- \"$current\"))\n"
          "  elif [ -n \"$takes\" ]; then\n"
          "    COMPREPLY=($(compgen -W \"$values\" -- \"$current\"))\n"
          "  elif [ \"${current#-}\" != \"$current\" ]; then\n"
          "    COMPREPLY=($(compgen -W \"$flags\" -- \"$current\"))\n"
          "  else\n"
          "    COMPREPLY=($(compgen -W \"$commands\" -- \"$current\"))\n"
          "  fi\n"
          "}\n"
          "complete -o default -F _cleave cleave\n";
  return text;
}

//===----------------------------------------------------------------------===//
// zsh
//===----------------------------------------------------------------------===//

// Returns a completion with its description, in the form that zsh's _describe
// expects.
std::string described(const std::string &word, const std::string &help) {
  return "      " + quoted(word + ":" + help) + "\n";
}

void emitZsh(std::string &text, const Target &target) {
  text += "    flags=(\n";
  for (const Flag &flag : target.flags)
    for (const std::string &name : flag.names)
      text += described(name, flag.help);
  text += "    )\n    commands=(\n";
  for (const Target &command : target.commands)
    text += described(command.name, command.help);
  text += "    )\n";
  std::string arms;
  for (const Flag &flag : target.flags)
    if (flag.takesKey)
      arms += "    " + joined(flag.names, "|") + ") keys=1 ;;\n";
    else if (flag.takesValue)
      arms += "    " + joined(flag.names, "|") + ") values=(" +
              joined(flag.values, " ") + ") takes=1 ;;\n";
  if (!arms.empty())
    text += "    case $last in\n" + arms + "    esac\n";
}

std::string zshScript(const Target &root) {
  std::vector<std::string> names;
  for (const Target &command : root.commands)
    names.push_back(command.name);
  std::string text =
      "#compdef cleave\n"
      "# Completion of cleave for zsh. Written by `cleave completion zsh`.\n"
      "_cleave() {\n"
      "  local command= word last=${words[CURRENT-1]} takes= keys=\n"
      "  local -a flags commands values\n"
      "  for word in ${words[2,CURRENT-1]}; do\n"
      "    case \"$command/$word\" in\n"
      "    /-*) ;;\n";
  text += "    /" + joined(names, "|/") + ") command=$word ;;\n";
  for (const Target &command : root.commands)
    for (const Target &sub : command.commands)
      text += "    " + command.name + "/" + sub.name +
              ") command=" + quoted(command.name + " " + sub.name) + " ;;\n";
  text += "    esac\n"
          "  done\n"
          "  case $command in\n";
  forEach(text, root, "", emitZsh);
  text += "  esac\n"
          "  if [[ -n $keys ]]; then\n"
          "    compadd -S '' -- " +
          joined(keyWords(), " ") +
          "\n"
          "  elif [[ -n $takes ]]; then\n"
          "    (( $#values )) && compadd -a values\n"
          "    _files\n"
          "  elif [[ ${words[CURRENT]} == -* ]]; then\n"
          "    _describe -o flag flags\n"
          "  elif (( $#commands )); then\n"
          "    _describe command commands\n"
          "  else\n"
          "    _files\n"
          "  fi\n"
          "}\n"
          "if [ \"$funcstack[1]\" = _cleave ]; then _cleave; else compdef "
          "_cleave cleave; fi\n";
  return text;
}

} // namespace

std::function<int()> driver::addCompletion(CLI::App &app) {
  auto shell = std::make_shared<std::string>();
  app.add_option("shell", *shell, "bash or zsh")
      ->type_name("bash|zsh")
      ->required();
  return [shell, &app] {
    if (*shell != "bash" && *shell != "zsh")
      throw Failure(BadUsage,
                    "cleave completion " + *shell + ": expected bash or zsh");
    Target root = targetOf(*app.get_parent());
    std::cout << (*shell == "bash" ? bashScript(root) : zshScript(root));
    return Success;
  };
}
