package e2e

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// plx can print every message that docs/troubleshooting.md explains: each part
// of a quoted message, between dots, occurs in a string of the source.
func TestTroubleshootingQuotesMessages(t *testing.T) {
	texts := stringsOfSource(t)
	row := regexp.MustCompile("(?m)^\\| (`.+?`) \\| ")
	quoted := regexp.MustCompile("`([^`]+)`")
	messages := 0
	for _, cell := range row.FindAllStringSubmatch(string(read(t, "../docs/troubleshooting.md")), -1) {
		for _, message := range quoted.FindAllStringSubmatch(cell[1], -1) {
			messages++
			if !printed(texts, message[1]) {
				t.Errorf("no string of the source has the parts of %q, in this order", message[1])
			}
		}
	}
	if messages < 40 {
		t.Errorf("the page has %d messages, want 40 at least", messages)
	}
	if printed(texts, "host ... is on ... fire") || printed(texts, "too ... with status ... exited") {
		t.Error("messages are found that plx does not print")
	}
}

// printed reports whether a string of the source has all parts of a message in their order.
func printed(texts []string, message string) bool {
	return slices.ContainsFunc(texts, func(text string) bool {
		for part := range strings.SplitSeq(message, "...") {
			_, after, found := strings.Cut(text, strings.Trim(part, " "))
			if !found {
				return false
			}
			text = after
		}
		return true
	})
}

// stringsOfSource returns the string literals of plx and its trainer, without tests. A
// verb of a format is left out.
func stringsOfSource(t *testing.T) (texts []string) {
	t.Helper()
	verb := regexp.MustCompile(`%[-+#.0-9]*[a-z]`)
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "../internal/") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if literal, is := n.(*ast.BasicLit); is && literal.Kind == token.STRING {
				text, err := strconv.Unquote(literal.Value)
				if err == nil && strings.Contains(text, "%") { // the pattern is slow
					text = verb.ReplaceAllString(text, "")
				}
				texts = append(texts, text)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}
