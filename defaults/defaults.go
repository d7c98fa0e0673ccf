// Package defaults has the values that a user set once for flags of the command line: in
// variables of the environment, and in a configuration file.
//
// The file is TOML. A key is the name of a flag, for every command that has it or, in
// the table of a command, for that one:
//
//	hosts = "resources.txt"
//
//	[launch]
//	lease = "60s"
//	env   = ["WANDB_MODE=offline", "OMP_NUM_THREADS=4"]
//
// The command line is preferred to the environment, the environment to the table of the
// command, and that to the keys of all commands.
package defaults

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
)

// Setting is a value for a flag of a command.
type Setting struct {
	Values []string // one, or several for a flag that may be repeated
	From   string   // where it was set: "$PLX_LEASE", or the file and line
}

// Mistake is an error in the configuration file or in a variable.
type Mistake struct {
	Where string // file and line, or the variable
	Name  string // name of a flag or command that is not known; "": something else is wrong
	Text  string // what is wrong

	advice string // what to do; "": the text tells it
	cause  error  // of a file that cannot be read; nil: another mistake
}

func (m *Mistake) Error() string { return m.Where + ": " + m.Text }

func (m *Mistake) Unwrap() error { return m.cause }

// Hint returns what to do, "" if the text tells it.
func (m *Mistake) Hint() string { return m.advice }

// Variable is the name of the variable that sets a flag.
func Variable(flag string) string {
	return "PLX_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// foreign are flags without a variable, because tasks of plx get one of that name with
// another meaning.
var foreign = []string{"rank"}

// Path is where the configuration file is looked for: $PLX_CONFIG, else plx/config.toml
// in the user's folder for configurations.
func Path() (string, error) {
	if path := os.Getenv("PLX_CONFIG"); path != "" {
		return path, nil
	}
	dir := os.Getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(dir) { // as the standard for that variable has it
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "plx", "config.toml"), nil
}

// Defaults are the values that the user set.
type Defaults struct {
	path string
	text string
	keys map[string]any // of the file
}

// Read reads the configuration file. None is no error, unless $PLX_CONFIG names it.
func Read(path string) (*Defaults, error) {
	d := &Defaults{path: path}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && os.Getenv("PLX_CONFIG") == "" {
		return d, nil
	}
	if err != nil && os.Getenv("PLX_CONFIG") != "" {
		return nil, &Mistake{Where: "$PLX_CONFIG", Text: err.Error(), advice: "unset PLX_CONFIG, or name a file that can be read", cause: err}
	}
	if err != nil {
		return nil, err
	}
	d.text = string(text)
	if _, err := toml.Decode(d.text, &d.keys); err != nil {
		where := path
		if e := (toml.ParseError{}); errors.As(err, &e) {
			where, err = fmt.Sprintf("%s:%d", path, e.Position.Line), errors.New(e.Message)
		}
		return nil, &Mistake{Where: where, Text: err.Error()}
	}
	return d, nil
}

// Check returns a *Mistake for the first key that no command has. flags has the names
// of the flags of each command.
func (d *Defaults) Check(flags map[string][]string) error {
	for _, key := range sorted(d.keys) {
		table, isTable := d.keys[key].(map[string]any)
		switch {
		case !isTable && !slices.ContainsFunc(sorted(flags), func(c string) bool { return slices.Contains(flags[c], key) }):
			return &Mistake{Where: d.at("", key), Name: key, Text: fmt.Sprintf("no command has a flag --%s", key)}
		case isTable && flags[key] == nil:
			return &Mistake{Where: d.at(key, ""), Name: key, Text: fmt.Sprintf("plx has no command %s", key)}
		}
		for _, name := range sorted(table) {
			if !slices.Contains(flags[key], name) {
				return &Mistake{Where: d.at(key, name), Name: name, Text: fmt.Sprintf("plx %s has no flag --%s", key, name)}
			}
		}
	}
	return nil
}

// Of is the value of a flag of a command, nil if none was set.
func (d *Defaults) Of(command, flag string) (*Setting, error) {
	if text := os.Getenv(Variable(flag)); text != "" && !slices.Contains(foreign, flag) {
		return &Setting{strings.Split(text, "\n"), "$" + Variable(flag)}, nil
	}
	table, _ := d.keys[command].(map[string]any)
	value, set := table[flag]
	from := d.at(command, flag)
	if !set {
		if value, set = d.keys[flag]; !set {
			return nil, nil
		}
		from = d.at("", flag)
	}
	values, err := texts(value)
	if err != nil {
		return nil, &Mistake{Where: from, Text: fmt.Sprintf("%s: %v", flag, err)}
	}
	return &Setting{values, from}, nil
}

// texts writes a value as it is written on the command line.
func texts(value any) ([]string, error) {
	switch v := value.(type) {
	case string:
		return []string{v}, nil
	case bool:
		return []string{strconv.FormatBool(v)}, nil
	case int64:
		return []string{strconv.FormatInt(v, 10)}, nil
	case []any:
		var all []string
		for _, e := range v {
			one, err := texts(e)
			if _, list := e.([]any); list || err != nil {
				return nil, errors.New("want a list of texts")
			}
			all = append(all, one...)
		}
		return all, nil
	}
	return nil, errors.New(`want a text such as "60s", a whole number, true, false, or a list`)
}

// at is the file with the line of a key in a table; "" are the keys before all tables, or
// the table itself.
func (d *Defaults) at(table, key string) string {
	in := ""
	for i, line := range strings.Split(d.text, "\n") {
		line = strings.TrimSpace(line)
		if name, is := strings.CutPrefix(line, "["); is {
			name, _, _ = strings.Cut(name, "]")
			in = strings.Trim(name, ` "'`)
		}
		name, _, _ := strings.Cut(line, "=")
		if in == table && (key == "" || strings.Trim(name, ` "'`) == key) {
			return fmt.Sprintf("%s:%d", d.path, i+1)
		}
	}
	if key == "" && table != "" { // the table is written as { ... }
		return d.at("", table)
	}
	return d.path
}

func sorted[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
