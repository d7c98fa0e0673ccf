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
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/plx-run/plx/internal/bounded"
)

// Flag is what defaults must know of a flag of the command line.
type Flag struct {
	Repeatable bool // it may have several values
	Switch     bool // it is given without a value
	Path       bool // its values are files of this machine: ~ is the user's home
	Own        bool // it means something else than in other commands: only its command's table sets it
	Typed      bool // only the command line sets it

	// Wrong says what is wanted in place of a wrong value, and gives one that is right; nothing
	// of a right value.
	Wrong func(value string) (want, right string)
}

// Flags are all flags, by command and long name.
type Flags map[string]map[string]Flag

// Setting is a value for a flag of a command.
type Setting struct {
	Values []string // one, or several for a flag that may be repeated
	From   string   // where it was set: "$PLX_LEASE", or the file and line
}

// Mistake is an error in the configuration file or in a variable.
type Mistake struct {
	Where string   // file and line, or the variable
	Name  string   // what is not known; "": something else is wrong
	Known []string // what could have been meant by Name
	Text  string   // what is wrong

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

// ofTasks are variables that plx gives tasks, and whose names are those of flags or near to one.
// They set no flag: a task may run plx.
var ofTasks = []string{"PLX_RANK", "PLX_CHECKPOINTS"}

// others are variables of plx that set no flag.
var others = []string{"PLX_CONFIG", "PLX_LOG_LEVEL"}

// Path is where the configuration file is looked for: $PLX_CONFIG, else plx/config.toml
// in the user's folder for configurations.
func Path() (string, error) {
	if path := os.Getenv("PLX_CONFIG"); path != "" {
		return AtHome(path), nil
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

// Defaults are the values that the user set. All are right.
type Defaults struct {
	flags Flags
	path  string
	keys  map[string]any // of the file
	lines map[string]int // of its keys, and of those in tables as table.key
}

// Read reads the configuration file and the variables. The first thing in them that is wrong
// is a *Mistake. No file is no error, unless $PLX_CONFIG names it.
func Read(path string, flags Flags) (*Defaults, error) {
	d := &Defaults{flags: flags, path: path}
	if err := d.readFile(); err != nil {
		return nil, err
	}
	if err := d.checkNames(); err != nil {
		return nil, err
	}
	for _, command := range sorted(flags) {
		for _, name := range sorted(flags[command]) {
			if _, err := d.read(command, name); err != nil {
				return nil, err
			}
		}
	}
	return d, nil
}

// readFile reads keys and where they are.
func (d *Defaults) readFile() error {
	text, err := bounded.ReadFile(d.path, bounded.Words)
	if errors.Is(err, fs.ErrNotExist) && os.Getenv("PLX_CONFIG") == "" {
		return nil
	}
	if err != nil {
		m := &Mistake{Where: "configuration", Text: err.Error(), advice: "put a file there that plx can read, or remove what is there", cause: err}
		if os.Getenv("PLX_CONFIG") != "" {
			m.Where, m.advice = "$PLX_CONFIG", "unset PLX_CONFIG, or name a file that can be read"
		}
		return m
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff")) // some editors begin every file with it
	if err := toml.Unmarshal(text, &d.keys); err != nil {
		m := &Mistake{Where: d.path, Text: strings.TrimPrefix(err.Error(), "toml: ")}
		if e, located := errors.AsType[*toml.DecodeError](err); located {
			line, _ := e.Position()
			m.Where = fmt.Sprintf("%s:%d", d.path, line)
		}
		return m
	}
	d.lines = linesOf(text)
	return nil
}

// linesOf finds the keys of a file. The decoder does not tell where they are.
func linesOf(text []byte) map[string]int {
	lines, p := map[string]int{}, unstable.Parser{}
	p.Reset(text)
	// note notes a key or the heading of a table, and returns its full name.
	note := func(table string, node *unstable.Node) string {
		for key := node.Key(); key.Next(); {
			table += "." + string(key.Node().Data)
			if lines[table] == 0 {
				lines[table] = p.Shape(key.Node().Raw).Start.Line
			}
		}
		return table
	}
	table := ""
	for p.NextExpression() {
		e := p.Expression()
		if e.Kind != unstable.KeyValue {
			table = note("", e)
			continue
		}
		within := note(table, e)
		if value := e.Value(); value.Kind == unstable.InlineTable {
			for keys := value.Children(); keys.Next(); {
				note(within, keys.Node())
			}
		}
	}
	return lines
}

// at is the file with the line of a key, or of one in a table.
func (d *Defaults) at(keys ...string) string {
	return fmt.Sprintf("%s:%d", d.path, d.lines["."+strings.Join(keys, ".")])
}

// checkNames returns a *Mistake for the first key that no command has.
func (d *Defaults) checkNames() error {
	commands := sorted(d.flags)
	var flags []string
	for _, command := range commands {
		flags = append(flags, sorted(d.flags[command])...)
	}
	for _, key := range sorted(d.keys) {
		table, isTable := d.keys[key].(map[string]any)
		switch {
		case !isTable && !slices.Contains(flags, key):
			return &Mistake{Where: d.at(key), Name: key, Known: flags, Text: fmt.Sprintf("no command has a flag --%s", key)}
		case isTable && d.flags[key] == nil:
			return &Mistake{Where: d.at(key), Name: key, Known: commands, Text: fmt.Sprintf("plx has no command %s", key)}
		}
		for _, name := range sorted(table) {
			if _, known := d.flags[key][name]; !known {
				return &Mistake{Where: d.at(key, name), Name: name, Known: sorted(d.flags[key]), Text: fmt.Sprintf("plx %s has no flag --%s", key, name)}
			}
		}
	}
	return nil
}

// Of is the value of a flag of a command, nil if none was set.
func (d *Defaults) Of(command, flag string) *Setting {
	s, _ := d.read(command, flag) // Read has found no mistake
	return s
}

func (d *Defaults) read(command, flag string) (*Setting, error) {
	about, variable := d.flags[command][flag], Variable(flag)
	if about.Typed {
		return nil, d.checkTyped(command, flag)
	}
	if text := os.Getenv(variable); text != "" && !about.Own && !slices.Contains(ofTasks, variable) {
		values := []string{text}
		if about.Repeatable {
			values = strings.Split(text, "\n")
		}
		return about.setting(values, "$"+variable, variable+"=")
	}
	table, _ := d.keys[command].(map[string]any)
	value, set := table[flag]
	from := d.at(command, flag)
	if !set {
		if value, set = d.keys[flag]; !set || about.Own {
			return nil, nil
		}
		if _, isTable := value.(map[string]any); isTable { // of the command with the flag's name
			return nil, nil
		}
		from = d.at(flag)
	}
	values, err := about.texts(value)
	if err != nil {
		return nil, &Mistake{Where: from, Text: fmt.Sprintf("%s: %v", flag, err)}
	}
	return about.setting(values, from, flag+" = ")
}

// checkTyped returns a *Mistake if anything but the command line sets a flag.
func (d *Defaults) checkTyped(command, flag string) error {
	m := &Mistake{Text: fmt.Sprintf("--%s of plx %s works on the command line only", flag, command), advice: "remove it there"}
	table, _ := d.keys[command].(map[string]any)
	if os.Getenv(Variable(flag)) != "" {
		m.Where, m.advice = "$"+Variable(flag), "unset "+Variable(flag)
	} else if _, set := table[flag]; set {
		m.Where = d.at(command, flag)
	} else if _, set := d.keys[flag]; set {
		m.Where = d.at(flag)
	} else {
		return nil
	}
	return m
}

// setting checks values. name is how the user writes what is before one.
func (f Flag) setting(values []string, from, name string) (*Setting, error) {
	for i, value := range values {
		if f.Wrong != nil {
			if want, right := f.Wrong(value); want != "" {
				m := &Mistake{Where: from, Text: fmt.Sprintf("%q: %s", value, want), advice: name + right}
				if !strings.HasPrefix(from, "$") {
					m.Text = name + m.Text
				}
				if !strings.HasPrefix(from, "$") && !f.Switch {
					m.advice = name + strconv.Quote(right)
				}
				return nil, m
			}
		}
		if f.Path {
			values[i] = AtHome(value)
		}
	}
	return &Setting{values, from}, nil
}

// texts writes a value of the file as on the command line.
func (f Flag) texts(value any) ([]string, error) {
	list, isList := value.([]any)
	switch {
	case isList && !f.Repeatable:
		return nil, errors.New("want one value, not a list")
	case !isList:
		list = []any{value}
	}
	var all []string
	for _, e := range list {
		switch v := e.(type) {
		case string:
			all = append(all, v)
		case int64:
			all = append(all, strconv.FormatInt(v, 10))
		case bool:
			if !f.Switch {
				return nil, fmt.Errorf("want a text in quotes or a whole number, not %v", v)
			}
			all = append(all, strconv.FormatBool(v))
		default:
			return nil, errors.New("want a text in quotes, a whole number, true or false, or a list of them")
		}
	}
	return all, nil
}

// Strays are the variables that begin with PLX_ and set nothing.
func (d *Defaults) Strays() (names []string) {
	known := append(d.Variables(), ofTasks...)
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "PLX_") && !slices.Contains(known, name) {
			names = append(names, name)
		}
	}
	return names
}

// Variables are the names of all variables that mean something to plx.
func (d *Defaults) Variables() []string {
	names := slices.Clone(others)
	for _, flags := range d.flags {
		for flag := range flags {
			if name := Variable(flag); !slices.Contains(ofTasks, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// AtHome is a path whose ~ is the user's home.
func AtHome(path string) string {
	rest, tilde := strings.CutPrefix(path, "~")
	home, err := os.UserHomeDir()
	if !tilde || rest != "" && rest[0] != '/' || err != nil {
		return path
	}
	return home + rest
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
