package launcher

import (
	"cmp"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/protocol"
)

// outputs returns the patterns of the files that the job writes. These are the
// values of --output, and the files that plx's trainer writes if the program
// has the arguments args.
func outputs(patterns, args []string) (all []protocol.Output, err error) {
	for _, p := range patterns {
		pattern, err := protocol.ParsePattern(p)
		if err != nil {
			return nil, exit.Mistake(fmt.Errorf("--output %q: %w", p, err), "--output '*.pt' --output 'runs/**'")
		}
		all = append(all, protocol.Output{Pattern: pattern})
	}
	return append(all, telemetry(args)...), nil
}

// telemetry returns patterns of the summary, timeline and graph files that
// plx's trainer writes if the program has the arguments args. If the program
// does not use the trainer, the patterns match nothing.
func telemetry(args []string) (all []protocol.Output) {
	add := func(dir string, patterns ...string) {
		for _, p := range patterns {
			o := protocol.Output{Pattern: p, Implied: true}
			if o.Dir = dir; !filepath.IsAbs(dir) {
				o.Dir, o.Pattern = "", path.Join(literal().Replace(dir), p)
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
		name := literal().Replace(filepath.Base(file))
		if ext := filepath.Ext(file); ext != ".dot" && ext != ".json" {
			name += ".{dot,json}"
		}
		add(filepath.Dir(file), name)
	}
	return all
}

// literal escapes the glob characters of a path, so that the resulting pattern
// matches only that path.
var literal = sync.OnceValue(func() *strings.Replacer {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `{`, `\{`)
})

// argument returns the value of the flag name in a program's arguments. If the
// flag appears several times, the last value counts.
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
