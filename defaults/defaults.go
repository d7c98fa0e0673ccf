// Package defaults reads default values for command-line flags, which a user
// has set in environment variables or in a configuration file.
//
// The configuration file is TOML. A key is the name of a flag. A key at the
// top level applies to every command that has the flag, and a key in a
// command's table to that command only:
//
//	hosts = "resources.txt"
//
//	[launch]
//	lease = "60s"
//	env   = ["WANDB_MODE=offline", "OMP_NUM_THREADS=4"]
//
// The command line overrides environment variables. Those override the table
// of the command, and the table overrides the keys at the top level.
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

// Flag describes a command-line flag to this package.
type Flag struct {
	Repeatable       bool // the flag may occur several times on the command line
	Switch           bool // the flag needs no value, because it is a bool flag
	Path             bool // values are paths on the local machine; ~ at the beginning means the user's home
	CommandTableOnly bool // only the table of the flag's own command in the configuration file may set it, because another command has a different flag of the same name
	CommandLineOnly  bool // only the command line may set the flag; a default for it is an error

	// Wrong checks a value. For a wrong value it returns what the flag accepts
	// and an example of a right value; for a right value it returns two empty
	// strings.
	Wrong func(value string) (want, right string)
}

// Flags holds the flags of all commands, by command and long flag name.
type Flags map[string]map[string]Flag

// Setting is the default that the user has set for a flag of a command.
type Setting struct {
	Values []string // values of the flag; only a repeatable flag may have more than one
	From   string   // source of the values: "$PLX_LEASE", or file and line
}

// Mistake is an error in the configuration file or in an environment variable.
type Mistake struct {
	Where string   // place of the mistake: file and line, or the name of the variable
	Name  string   // unknown name of a key or command; empty if the mistake is of another kind
	Known []string // valid names, among which the user may find the one that he meant by Name
	Text  string   // description of the mistake

	advice string // hint for the user; empty if Text is enough
	cause  error  // error of reading the file; nil if the mistake is of another kind
}

func (m *Mistake) Error() string { return m.Where + ": " + m.Text }

func (m *Mistake) Unwrap() error { return m.cause }

// Hint returns advice for the user, or "" if the error text is enough.
func (m *Mistake) Hint() string { return m.advice }

// Variable returns the name of the environment variable that sets a flag, such
// as PLX_LEASE for lease.
func Variable(flag string) string {
	return "PLX_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// taskVariables lists environment variables that plx sets for its tasks and
// whose names look like the variable of a flag. Read does not report them as
// unknown, because a task may itself run plx.
var taskVariables = []string{"PLX_RANK", "PLX_CHECKPOINTS"}

// otherVariables lists the environment variables that plx reads and that set no flag.
var otherVariables = []string{"PLX_CONFIG", "PLX_LOG_LEVEL"}

// Path returns the path of the configuration file: $PLX_CONFIG if it is set,
// otherwise plx/config.toml in the user's configuration folder.
func Path() (string, error) {
	if path := os.Getenv("PLX_CONFIG"); path != "" {
		return ExpandHome(path), nil
	}
	dir := os.Getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(dir) { // the XDG specification says to ignore a relative path
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "plx", "config.toml"), nil
}

// Defaults holds the defaults that the user has set. Read has checked all of
// them.
type Defaults struct {
	flags Flags
	path  string
	keys  map[string]any // decoded content of the configuration file
	lines map[string]int // maps each key, as ".key" or ".table.key", to its line in the file
}

// Read reads and checks the configuration file at path and the environment
// variables. The first error in their content is returned as a *Mistake. A
// missing file is an error only if $PLX_CONFIG names it.
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

// readFile reads the configuration file into d.keys and d.lines.
func (d *Defaults) readFile() error {
	text, err := bounded.ReadFile(d.path, bounded.Words)
	if errors.Is(err, fs.ErrNotExist) && os.Getenv("PLX_CONFIG") == "" {
		return nil
	}
	if err != nil {
		m := &Mistake{Where: "configuration", Text: err.Error(), advice: "make it a file that plx can read, or remove it", cause: err}
		if os.Getenv("PLX_CONFIG") != "" {
			m.Where, m.advice = "$PLX_CONFIG", "unset PLX_CONFIG, or name a file that can be read"
		}
		return m
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff")) // some editors write a byte order mark at the beginning
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

// linesOf returns the line number of each key of a TOML file. It parses the
// file again, because toml.Unmarshal does not report positions.
func linesOf(text []byte) map[string]int {
	lines, p := map[string]int{}, unstable.Parser{}
	p.Reset(text)
	// note records the line of a key or table heading, and returns its full
	// name.
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

// at returns the file and line of a key, given as the key alone or as table
// and key.
func (d *Defaults) at(keys ...string) string {
	return fmt.Sprintf("%s:%d", d.path, d.lines["."+strings.Join(keys, ".")])
}

// checkNames returns a *Mistake for the first key that is no flag or command
// of plx.
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

// Of returns the default for a flag of a command, or nil if the user has set
// none.
func (d *Defaults) Of(command, flag string) *Setting {
	s, _ := d.read(command, flag) // Read has already returned an error for a wrong value
	return s
}

func (d *Defaults) read(command, flag string) (*Setting, error) {
	about, variable := d.flags[command][flag], Variable(flag)
	if about.CommandLineOnly {
		return nil, d.checkTyped(command, flag)
	}
	if text := os.Getenv(variable); text != "" && !about.CommandTableOnly && !slices.Contains(taskVariables, variable) {
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
		if value, set = d.keys[flag]; !set || about.CommandTableOnly {
			return nil, nil
		}
		if _, isTable := value.(map[string]any); isTable { // The value is the table of the command that has the same name as the flag.
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

// checkTyped returns a *Mistake if a variable or the file sets a flag that
// only the command line may set.
func (d *Defaults) checkTyped(command, flag string) error {
	m := &Mistake{Text: fmt.Sprintf("--%s of plx %s works on the command line only", flag, command), advice: "remove this setting"}
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

// setting checks values and returns them as a Setting. name is the text that
// the user writes before a value, such as "lease = "; a hint uses it.
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
			values[i] = ExpandHome(value)
		}
	}
	return &Setting{values, from}, nil
}

// texts converts a TOML value to the strings that the flag would have on the
// command line.
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

// Strays returns the names of environment variables that begin with PLX_ and
// that plx does not know.
func (d *Defaults) Strays() (names []string) {
	known := append(d.Variables(), taskVariables...)
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "PLX_") && !slices.Contains(known, name) {
			names = append(names, name)
		}
	}
	return names
}

// Variables returns the names of all environment variables that plx reads.
func (d *Defaults) Variables() []string {
	names := slices.Clone(otherVariables)
	for _, flags := range d.flags {
		for flag := range flags {
			if name := Variable(flag); !slices.Contains(taskVariables, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// ExpandHome replaces ~ at the beginning of path by the user's home folder. ~user
// is not replaced.
func ExpandHome(path string) string {
	rest, tilde := strings.CutPrefix(path, "~")
	home, err := os.UserHomeDir()
	if !tilde || rest != "" && rest[0] != '/' || err != nil {
		return path
	}
	return home + rest
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
