package launcher

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestKindOf(t *testing.T) {
	dir := t.TempDir()
	make := func(name string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("x"), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for program, want := range map[string]kind{
		"python3":                             onHost,
		"train-that-is-not-here":              onHost,
		make("train", 0o755):                  local,
		filepath.Dir(make("pkg/a.go", 0o644)): goPackage,
	} {
		if got, err := kindOf(program); err != nil || got != want {
			t.Errorf("%s: %v, %v; want %v", program, got, err, want)
		}
	}
	for program, want := range map[string]int{
		dir + "/none":       127,
		make("data", 0o644): 126,
		filepath.Dir(make("empty/README", 0o644)): 126,
		"/dev/null":                             126,
		filepath.Join(make("file", 0o755), "x"): 126,
	} {
		if _, err := kindOf(program); Code(err) != want || !strings.Contains(err.Error(), program) {
			t.Errorf("%s: %v (%d); want code %d and its name", program, err, Code(err), want)
		}
	}
}

func TestMatch(t *testing.T) {
	rs := []record{ // the oldest first
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
		if got, err := match(rs, text); err == nil || Code(err) != CodeUsage || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %s, %v; want a usage error that names it", text, got.Job, err)
		}
	}
}
