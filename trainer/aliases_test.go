package trainer

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestAliasesListFields checks that the comment of every type alias lists the
// fields of the struct. go doc does not show them for an alias.
func TestAliasesListFields(t *testing.T) {
	aliased := map[string]reflect.Type{
		"Config": reflect.TypeFor[Config](), "Ending": reflect.TypeFor[Ending](), "Gradient": reflect.TypeFor[Gradient](),
		"Hook": reflect.TypeFor[Hook](), "Result": reflect.TypeFor[Result](), "State": reflect.TypeFor[State](),
	}
	comments := aliasComments(t)
	item := regexp.MustCompile(`(?m)^  - (\w+ .+?): `)
	short := strings.NewReplacer("config.", "", "hooks.", "", "replica.", "", "interface {}", "any")
	for name, comment := range comments {
		of, ok := aliased[name]
		switch {
		case !ok:
			t.Errorf("%s is missing in this test", name)
		case of.Kind() == reflect.Struct:
			var got, want []string
			for _, m := range item.FindAllStringSubmatch(comment, -1) {
				got = append(got, m[1])
			}
			for _, f := range reflect.VisibleFields(of) {
				want = append(want, f.Name+" "+short.Replace(f.Type.String()))
			}
			if !slices.Equal(got, want) {
				t.Errorf("the comment of %s lists\n%q, want\n%q", name, got, want)
			}
		}
	}
	if len(comments) != len(aliased) {
		t.Errorf("%d aliases, want %d", len(comments), len(aliased))
	}
}

// aliasComments returns the comments of this package's aliases, by name.
func aliasComments(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	comments := map[string]string{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range parsed.Decls {
			decl, ok := decl.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range decl.Specs {
				if spec, ok := spec.(*ast.TypeSpec); ok && spec.Assign.IsValid() {
					comments[spec.Name.Name] = decl.Doc.Text()
				}
			}
		}
	}
	return comments
}
