package jobs

import (
	"strings"
	"testing"

	"github.com/plx-run/plx/launcher/exit"
)

func TestMatch(t *testing.T) {
	rs := []Record{ // the oldest first
		{Job: "mlp-20250101-000000-aaaa"}, {Job: "mlp-20250102-000000-bbbb"},
		{Job: "night-20250103-000000-cccc", Name: "night"}, {Job: "night-20250104-000000-dddd", Name: "night"},
	}
	for text, want := range map[string]string{
		"mlp-20250101-000000-aaaa": rs[0].Job, // whole
		"mlp-20250102":             rs[1].Job, // a beginning
		"night":                    rs[3].Job, // the newest of a name
		"night-20250103":           rs[2].Job,
	} {
		if got, err := match(rs, text); err != nil || got.Job != want {
			t.Errorf("%s: %s, %v; want %s", text, got.Job, err, want)
		}
	}
	for _, text := range []string{"mlp", "mlp-2025", "other", "ight"} {
		if got, err := match(rs, text); err == nil || exit.Code(err) != exit.CodeUsage || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %s, %v; want a usage error that names it", text, got.Job, err)
		}
	}
}
