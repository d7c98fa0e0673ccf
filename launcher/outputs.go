package launcher

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/protocol"
)

// outputs returns what files a job makes: those of --output, and those that plx's trainer
// writes with these arguments.
func outputs(patterns, args []string) (all []protocol.Output, err error) {
	for _, p := range patterns {
		if err := checkPattern(p); err != nil {
			return nil, exit.Mistake(fmt.Errorf("--output %q: %w", p, err), "--output '*.pt' --output 'runs/**'")
		}
		all = append(all, protocol.Output{Pattern: clean(p)})
	}
	return append(all, telemetry(args)...), nil
}

// clean returns a pattern without what means nothing, such as a slash at the end.
func clean(p string) string {
	if p = path.Clean(p); p == "." {
		return "**"
	}
	return p
}

func checkPattern(p string) error {
	switch {
	case p == "":
		return errors.New("the pattern is empty")
	case path.IsAbs(p) || p[0] == '~':
		return errors.New("a pattern is relative to where the tasks run")
	case clean(p) == ".." || strings.HasPrefix(clean(p), "../"):
		return errors.New("it leads out of the folder where the tasks run")
	case clean(p)[0] == '.':
		return errors.New("names that begin with a dot are not fetched")
	case !utf8.ValidString(p) || len(p) > protocol.MaxOutputName || !doublestar.ValidatePattern(p):
		return errors.New("it is no valid pattern")
	}
	return nil
}

// telemetry returns the summaries, timelines and graph that arguments for plx's trainer name.
// Programs without it have no files of such names.
func telemetry(args []string) (all []protocol.Output) {
	add := func(dir string, patterns ...string) {
		for _, p := range patterns {
			o := protocol.Output{Pattern: p, Implied: true}
			if o.Dir = dir; !filepath.IsAbs(dir) {
				o.Dir, o.Pattern = "", path.Join(literal.Replace(dir), p)
			}
			if utf8.ValidString(o.Dir+o.Pattern) && o.Pattern[0] != '.' && doublestar.ValidatePattern(o.Pattern) {
				all = append(all, o)
			}
		}
	}
	if dir, given := argument(args, "summary-dir"); given && dir != "" {
		add(dir, "events.out.tfevents.*", "steps.*.jsonl", "eval/events.out.tfevents.*", "eval/steps.*.jsonl")
	}
	if _, given := argument(args, "profile-steps"); given {
		dir, _ := argument(args, "profile-dir")
		add(cmp.Or(dir, "."), "timeline-*.json")
	}
	if file, given := argument(args, "export-graph"); given && file != "" {
		name := literal.Replace(filepath.Base(file))
		if ext := filepath.Ext(file); ext != ".dot" && ext != ".json" {
			name += ".{dot,json}"
		}
		add(filepath.Dir(file), name)
	}
	return all
}

// literal makes a pattern of a path.
var literal = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `{`, `\{`)

// argument returns the value of a program's flag, the last one that is given.
func argument(args []string, name string) (value string, given bool) {
	for i, arg := range args {
		flag, v, has := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(arg, "-"), "-"), "=")
		if flag != name || !strings.HasPrefix(arg, "-") {
			continue
		}
		if !has && i+1 < len(args) {
			v = args[i+1]
		}
		value, given = v, true
	}
	return value, given
}
