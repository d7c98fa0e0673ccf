package launcher

import (
	"fmt"
	"strings"
	"testing"
)

func TestOutputPatternsOfArguments(t *testing.T) {
	for _, c := range []struct {
		patterns, args, want string // want lists the patterns (implied ones with a +), or the error
	}{
		{"*.pt runs/** out/ ./a .", "", "*.pt runs/** out a **"},
		{"/tmp/x", "", "relative to where the tasks run"},
		{"~/x", "", "relative to where the tasks run"},
		{"../x", "", "leads out"},
		{"a/../../x", "", "leads out"},
		{".ssh/x", "", "begin with a dot"},
		{"[a", "", "the pattern is not valid"},
		{"a\xff", "", "the pattern is not valid"},
		{"", "--summary-dir tb --x", "+tb/events.out.tfevents.* +tb/steps.*.jsonl +tb/eval/events.out.tfevents.* +tb/eval/steps.*.jsonl"},
		{"", "-summary-dir=/var/tb", "/var/tb+events.out.tfevents.* /var/tb+steps.*.jsonl /var/tb+eval/events.out.tfevents.* /var/tb+eval/steps.*.jsonl"},
		{"", "--summary-dir ../tb", ""},
		{"", "--summary-dir a* --summary-dir b*", `+b\*/events.out.tfevents.* +b\*/steps.*.jsonl +b\*/eval/events.out.tfevents.* +b\*/eval/steps.*.jsonl`},
		{"", "--profile-steps 1:2", "+timeline-*.json"},
		{"", "--profile-steps=1:2 --profile-dir=/p", "/p+timeline-*.json"},
		{"", "--profile-dir p", ""},
		{"", "--export-graph g.dot", "+g.dot"},
		{"", "--export-graph=graphs/g.json", "+graphs/g.json"},
		{"", "--export-graph g[1]", `+g\[1].{dot,json}`},
		{"", "--export-graph /var/g", "/var+g.{dot,json}"},
		{"", "--export-graph ../g.dot", ""},
		{"", "summary-dir x --summary-dir", ""},
	} {
		all, err := outputs(strings.Fields(c.patterns), strings.Fields(c.args))
		var words []string
		for _, o := range all {
			word := o.Pattern
			if o.Implied {
				word = o.Dir + "+" + o.Pattern
			}
			words = append(words, word)
		}
		got := strings.Join(words, " ")
		if err != nil {
			got = err.Error()
		}
		if got != c.want && (err == nil || !strings.Contains(got, c.want)) {
			t.Errorf("%q, %q: %s, want %s", c.patterns, c.args, got, c.want)
		}
	}
	if _, err := outputs([]string{""}, nil); fmt.Sprint(err) != `--output "": the pattern is empty` {
		t.Error(err)
	}
}
