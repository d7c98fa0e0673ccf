package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// docs/pytorch-twins.md shows the complete text of each Python program and of its
// counterpart in examples/, which tests run.
func TestTwinsPageShowsTheFiles(t *testing.T) {
	const page = "docs/pytorch-twins.md"
	shown := showsFiles(t, page)
	twins, err := filepath.Glob("docs/twins/*.py")
	if err != nil || len(twins) < 3 {
		t.Fatal(twins, err)
	}
	for _, twin := range twins {
		if example := "examples/" + strings.TrimSuffix(filepath.Base(twin), ".py") + "/main.go"; !shown[twin] || !shown[example] {
			t.Errorf("%s shows %s or %s not", page, twin, example)
		}
	}
}

// showsFiles returns the files whose text a page shows, each below a line with
// its name.
func showsFiles(t *testing.T, page string) map[string]bool {
	t.Helper()
	before, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	file := regexp.MustCompile("(?m)^<!-- file (.*) -->\n(?:```.*\n(?s:.*?)^```\n)?")
	after := file.ReplaceAllStringFunc(string(before), func(found string) string {
		name := file.FindStringSubmatch(found)[1]
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		shown[name] = true
		language := map[string]string{".go": "go", ".py": "python"}[filepath.Ext(name)]
		return "<!-- file " + name + " -->\n```" + language + "\n" + string(text) + "```\n"
	})
	if after == string(before) {
		return shown
	}
	t.Errorf("%s does not show what the files hold: run go test . -update", page)
	if *update {
		if err := os.WriteFile(page, []byte(after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return shown
}
