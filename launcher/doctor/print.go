package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/plx-run/plx/internal/plural"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/logs/style"
)

// JSON writes the diagnosis as a JSON object.
func (d Diagnosis) JSON(w io.Writer) error {
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	out.SetEscapeHTML(false)
	return out.Encode(d)
}

// Print writes one line per finding, and then a summary.
func (d Diagnosis) Print(t console.Terminal) error {
	for _, f := range d.Findings {
		text := fmt.Sprintf(": %s: %s", where(f.Hosts), f.Text)
		if f.Remedy != "" {
			text += "; remedy: " + f.Remedy
		}
		if err := t.Marked(levels[f.Level], string(f.Level), text); err != nil {
			return err
		}
	}
	err := t.Print("%s", d.summary())
	if n := d.Reachability.Hosts; err == nil && n > 1 {
		err = t.Print("between hosts: each dialled the next one and the first, %d of %d pairs", d.Reachability.Pairs, n*(n-1))
	}
	return err
}

func where(hosts []string) string {
	switch {
	case len(hosts) == 1 && hosts[0] == thisMachine:
		return thisMachine
	case len(hosts) == 1:
		return "host " + hosts[0]
	}
	return "hosts " + console.Fold(hosts)
}

var levels = map[Level]style.Level{Error: style.Bad, Warning: style.Doubtful}

// summary returns the number of findings per level, and the number of hosts
// without a finding.
func (d Diagnosis) summary() string {
	count := map[Level]int{}
	touched := map[string]bool{}
	for _, f := range d.Findings {
		count[f.Level]++
		for _, h := range f.Hosts {
			touched[h] = true
		}
	}
	hosts := plural.Count(len(d.Hosts), "host")
	if len(d.Findings) == 0 {
		return hosts + ", nothing found"
	}
	var words []string
	for _, l := range []Level{Error, Warning} {
		if count[l] > 0 {
			words = append(words, plural.Count(count[l], string(l)))
		}
	}
	text := hosts + ": " + strings.Join(words, ", ")
	good := slices.DeleteFunc(slices.Clone(d.Hosts), func(h HostFacts) bool { return touched[h.Host] })
	if len(good) > 0 {
		text += fmt.Sprintf("; nothing found on %d", len(good))
	}
	return text
}
