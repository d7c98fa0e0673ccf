package envsync

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/plx-run/plx/internal/bounded"
)

// EnvironmentHint is the hint to print below an error of [Environment] that
// has no own hint.
const EnvironmentHint = "--env NAME=VALUE, or --env NAME for the value that it has here; each line of the file of --env-file is like either"

// maxEnvFile is the maximum size in bytes of a file passed to --env-file.
const maxEnvFile = 16 << 20

// Environment returns the variables that the user sets, as "NAME=VALUE",
// sorted by name. specs are the values of the flag --env, files those of
// --env-file. If a variable is set more than once, the last value wins; specs
// override files. lookup returns the value of a variable on the local machine,
// as os.LookupEnv does.
//
// A spec is NAME=VALUE, with any bytes but NUL in VALUE, or NAME alone. NAME
// alone takes the local machine's value, and is an error if the variable is
// not set there. Each line of a file is a spec, too.
//
// In a file Environment ignores empty lines, lines whose first character other
// than spaces is "#", spaces before NAME and a carriage return at the end of a
// line. Everything else is literal: quotes, backslashes, "#" and spaces are
// part of the value. This is the format of `docker run --env-file`.
//
// NAME must match [A-Za-z_][A-Za-z0-9_]*. Environment rejects names that plx
// itself sets. All errors are mistakes of the user; errors in a file begin
// with file:line.
func Environment(specs, files []string, lookup func(string) (string, bool)) ([]string, error) {
	values := map[string]string{}
	for _, file := range files {
		content, err := readEnvFile(file)
		if err != nil {
			return nil, err
		}
		if err := addLines(values, file, content, lookup); err != nil {
			return nil, err
		}
	}
	for _, spec := range specs {
		if err := addVariable(values, spec, lookup); err != nil {
			return nil, fmt.Errorf("--env: %w", err)
		}
	}
	list := make([]string, 0, len(values))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		list = append(list, name+"="+values[name])
	}
	return list, nil
}

var (
	dollar = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\$[A-Za-z_{(]`) })
	quoted = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?s)^('.*'|".*")$`) })
)

// ValueNotes returns notes about values that a shell would have expanded, and
// that plx leaves as they are. The notes contain only the variables' names,
// because values may be secrets. ValueNotes returns nil if [Environment]
// returns an error for the same arguments.
func ValueNotes(specs, files []string) (notes []string) {
	// The user did not type the values that come from the local machine, so
	// ValueNotes does not check them.
	given, here := map[string]string{}, func(string) (string, bool) { return "", true }
	for _, file := range files {
		content, err := readEnvFile(file)
		if err != nil || addLines(given, file, content, here) != nil {
			return nil
		}
	}
	for _, spec := range specs {
		if addVariable(given, spec, here) != nil {
			return nil
		}
	}
	for _, kind := range []struct {
		of        *regexp.Regexp
		stays, do string
	}{
		{dollar(), "the $ in its value stays as it is, no variable is put in", "--setup 'export NAME=...:$NAME' takes the hosts' value, --path FOLDERS comes before their PATH"},
		{quoted(), "the quotes are a part of its value", "leave them out if they are not meant"},
	} {
		var names []string
		for _, name := range slices.Sorted(maps.Keys(given)) {
			if kind.of.MatchString(given[name]) {
				names = append(names, name)
			}
		}
		if len(names) > 0 {
			notes = append(notes, fmt.Sprintf("note: variable %s: %s; %s", strings.Join(names, ", "), kind.stays, kind.do))
		}
	}
	return notes
}

func readEnvFile(file string) ([]byte, error) {
	content, err := bounded.ReadFile(file, maxEnvFile)
	if errors.Is(err, bounded.ErrTooLarge) {
		return nil, fmt.Errorf("--env-file %s: it has more than %d MiB: is it a file of variables?", file, maxEnvFile>>20)
	}
	if err != nil {
		return nil, fmt.Errorf("--env-file %s: %w", file, rootCause(err))
	}
	return content, nil
}

// addLines parses content, the content of a file in the format of --env-file,
// and adds its variables to values.
func addLines(values map[string]string, file string, content []byte, lookup func(string) (string, bool)) error {
	content = bytes.TrimPrefix(content, []byte("\ufeff"))
	number := 0
	for line := range strings.Lines(string(content)) {
		number++
		line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		line = strings.TrimLeft(line, " \t")
		if line == "" || line[0] == '#' {
			continue
		}
		if err := addVariable(values, line, lookup); err != nil {
			return fmt.Errorf("%s:%d: %w", file, number, err)
		}
	}
	return nil
}

// addVariable parses spec, NAME or NAME=VALUE, and adds the variable to
// values.
func addVariable(values map[string]string, spec string, lookup func(string) (string, bool)) error {
	name, value, given := strings.Cut(spec, "=")
	if err := checkName(name); err != nil {
		return err
	}
	if !given {
		var set bool
		if value, set = lookup(name); !set {
			return &hinted{
				text: fmt.Sprintf("%s is not set on this machine", name),
				hint: fmt.Sprintf("write %s=VALUE, or export it here first", name),
			}
		}
	}
	if strings.ContainsRune(value, 0) {
		return fmt.Errorf("the value of %s holds a NUL byte, which no variable can", name)
	}
	values[name] = value
	return nil
}

// reserved maps each variable that plx sets for every task to a hint and to
// the reason why the user must not set it. Names that begin with PLX_ are
// reserved too, except for those in the list settings.
var reserved = map[string]struct{ why, hint string }{
	"CUDA_VISIBLE_DEVICES": {"it follows the devices of the resource file", "write the GPU ids after the host, such as gpu01: 0,1"},
	"ROCR_VISIBLE_DEVICES": {"it follows the devices of the resource file", "write the GPU ids after the host, such as gpu01: 0,1"},
	"HIP_VISIBLE_DEVICES":  {"it follows the devices of the resource file", "write the GPU ids after the host, such as gpu01: 0,1"},
	"CUDA_DEVICE_ORDER":    {"device ids of the resource file count by PCI bus", leaveOut},
	"MASTER_ADDR":          {"plx chooses the address", "--nic NAME chooses the interface, addr=IP in the resource file the address"},
	"MASTER_PORT":          {"plx holds the port", "--port-range LOW-HIGH bounds the ports"},
	"RANK":                 {"it differs for every task", leaveOut},
	"WORLD_SIZE":           {"it follows the resource file", "-n N or --workers-per-host N changes the number of workers"},
	"LOCAL_RANK":           {"it differs for every task", leaveOut},
	"LOCAL_WORLD_SIZE":     {"it follows the resource file", "--workers-per-host N changes the number of workers"},
	"GROUP_RANK":           {"it differs for every host", leaveOut},
	"GROUP_WORLD_SIZE":     {"it follows the resource file", leaveOut},
	"ROLE_NAME":            {"all workers have one role", leaveOut},
	"ROLE_RANK":            {"it differs for every task", leaveOut},
	"ROLE_WORLD_SIZE":      {"it follows the resource file", leaveOut},
	"TF_CONFIG":            {"it differs for every task", leaveOut},

	"TORCHELASTIC_RUN_ID":          {"it is the job's id", leaveOut},
	"TORCHELASTIC_RESTART_COUNT":   {"plx counts the restarts", leaveOut},
	"TORCHELASTIC_MAX_RESTARTS":    {"it follows the launch", "--max-restarts N sets it"},
	"TORCHELASTIC_ERROR_FILE":      {"plx reads that file", leaveOut},
	"TORCHELASTIC_USE_AGENT_STORE": {"worker 0 serves the store", leaveOut},

	"PWD": {"it is the folder that the task runs in", "--chdir FOLDER chooses the folder"},
}

const leaveOut = "leave it out: plx sets it"

// settings are the variables with the prefix PLX_ that the user may set.
var settings = []string{"PLX_LOG_LEVEL", "PLX_BLAS", "PLX_CUDA", "PLX_CUBLAS"}

// CheckVariable returns an error unless the user may set the variable in
// "NAME=VALUE".
func CheckVariable(variable string) error {
	name, _, _ := strings.Cut(variable, "=")
	return checkName(name)
}

func checkName(name string) error {
	if !plainName().MatchString(name) {
		e := &hinted{text: fmt.Sprintf("%s is no name of a variable", shown(name)), hint: "a name has letters, digits and _, and no digit first"}
		if strings.HasPrefix(name, "export ") {
			e.hint = "leave out export: a line is NAME=VALUE"
		}
		return e
	}
	if slices.Contains(settings, name) {
		return nil
	}
	r, refused := reserved[name]
	if strings.HasPrefix(name, "PLX_") {
		r.why, r.hint, refused = "names that begin with PLX_ are plx's own", "of these you can set "+strings.Join(settings[:len(settings)-1], ", ")+" and "+settings[len(settings)-1], true
	}
	if refused {
		return &hinted{text: fmt.Sprintf("%s cannot be set: %s", name, r.why), hint: r.hint}
	}
	return nil
}

var plainName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`) })

// shown quotes an invalid variable name for a message, and truncates it to 20
// bytes: an argument that is not a name may be a secret value whose name was
// forgotten.
func shown(name string) string {
	const limit = 20
	if len(name) > limit {
		return fmt.Sprintf("%q...", name[:limit])
	}
	return fmt.Sprintf("%q", name)
}

// hinted is an error caused by a mistake of the user, with a hint.
type hinted struct{ text, hint string }

func (e *hinted) Error() string { return e.text }

// Hint returns what the user should do instead.
func (e *hinted) Hint() string { return e.hint }
