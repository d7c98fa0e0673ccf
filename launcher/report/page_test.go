package report

import (
	"bytes"
	"encoding/json"
	"flag"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/plx-run/plx/launcher/metrics"
)

var update = flag.Bool("update", false, "rewrite the golden file")

// hostile returns a run in which every text is the given one.
func hostile(text string) Run {
	all := points(3, 10, func(i int) float64 { return float64(i) })
	run := Run{
		Job: text, Name: text, Command: text, Created: start, State: text, Verdict: text, Details: []string{text},
		Facts: []Fact{{text, text}}, Plan: []string{text}, Tails: []Tail{{text, text, []string{text, text}}}, Missing: []string{text},
		Series: []Series{{text, text, text, all}, {text, text, "", all}, {CPU, text, "", all}, {GPU + "_0", text, "", all}, {"nan", text, text, points(2, 1, func(int) float64 { return math.NaN() })}},
	}
	for _, kind := range []string{text, Started, Exited, Restarted, Hung, Checkpoint, Noted, Ended} {
		run.Events = append(run.Events, Event{start, kind, text, text, text})
	}
	return run
}

// contained returns a description of each script or external resource in a
// page, which must have none.
func contained(page *html.Node) (wrong []string) {
	allowed := map[string]bool{}
	for _, tag := range strings.Fields("html head meta title style body header main section h1 h2 h3 h4 p span strong ul li div table thead tbody tr th td figure figcaption svg path text circle details summary pre code") {
		allowed[tag] = true
	}
	names := map[string]bool{}
	for _, name := range strings.Fields("lang charset http-equiv content name class open role aria-label viewBox d x y cx cy r") {
		names[name] = true
	}
	for n := range page.Descendants() {
		switch n.Type {
		case html.CommentNode:
			wrong = append(wrong, "comment "+n.Data)
		case html.ElementNode:
			if !allowed[n.Data] {
				wrong = append(wrong, "element "+n.Data)
			}
			for _, a := range n.Attr {
				if !names[a.Key] {
					wrong = append(wrong, "attribute "+a.Key)
				}
			}
		}
	}
	return wrong
}

func nasty() []string {
	return []string{
		"<script>alert(1)</script>", `"><img src=https://evil.example/x onerror=alert(1)>`, "</title></style></pre></svg><script>", "<!--", "]]>",
		"\x00\x1b[31mred\x1b[0m\x1b]0;title\a\r\nnext", "\xff\xfe\xc0", "\u202eright to left\u2066", "{{.}}", "&lt;&#0;", "'", "javascript:alert(1)", "", " ", strings.Repeat("x", 5000),
	}
}

func TestPageIsSelfContained(t *testing.T) {
	for _, text := range nasty() {
		for _, runs := range [][]Run{{hostile(text)}, {hostile(text), hostile("other")}, {hostile(text), hostile(text), {}, hostile("x"), {}}} {
			written, page := render(t, runs)
			for _, wrong := range contained(page) {
				t.Errorf("%q: the page has an %s", text, wrong)
			}
			if i := strings.IndexFunc(written, func(r rune) bool {
				return r < ' ' && r != '\n' && r != '\t' || r == 0xfffd || r == 0x202e || r == 0x2066
			}); i >= 0 {
				t.Errorf("%q: the page has the character %q", text, written[i:i+3])
			}
		}
	}
	written, page := render(t, trainings(2, 20))
	if at := regexp.MustCompile(`https?:|url\(|@import|<script|javascript:| style=| fill=| stroke=`).FindString(written); at != "" {
		t.Errorf("the page has %s", at)
	}
	var policy, generator string
	for _, m := range elements(page, "meta") {
		switch {
		case attr(m, "http-equiv") == "Content-Security-Policy":
			policy = attr(m, "content")
		case attr(m, "name") == "generator":
			generator = attr(m, "content")
		}
	}
	if policy != "default-src 'none'; style-src 'unsafe-inline'; img-src data:" || generator != "plx report" {
		t.Errorf("policy %q, generator %q", policy, generator)
	}
}

// FuzzPage checks that any text is escaped, and that it appears on the page.
func FuzzPage(f *testing.F) {
	for _, text := range nasty() {
		f.Add(text, 1.0, int64(0))
	}
	f.Add("loss", math.Inf(1), int64(-1)<<63)
	f.Add("loss", math.MaxFloat64, int64(1)<<62)
	f.Fuzz(func(t *testing.T, given string, value float64, at int64) {
		run := hostile(given)
		run.Series[0].Points = append(slices.Clone(run.Series[0].Points), metrics.Point{Step: at, Time: start.Add(time.Duration(at)), Last: metrics.Number(value), Min: metrics.Number(-value), Max: metrics.Number(value)})
		for _, runs := range [][]Run{{run}, {run, hostile("other")}} {
			_, page := render(t, runs)
			for _, wrong := range contained(page) {
				t.Errorf("the page has an %s", wrong)
			}
			blocks := elements(page, "pre")
			if len(blocks) < 3*len(runs)-3 {
				t.Errorf("%d blocks", len(blocks))
			}
			if len(runs) == 1 {
				if want, got := strings.TrimSpace(clean(given)), strings.TrimSpace(text(elements(page, "h1")[0])); got != want {
					t.Errorf("the title is %q, want %q", got, want)
				}
			}
		}
		for _, write := range []func(*bytes.Buffer) error{
			func(b *bytes.Buffer) error { return JSON(b, []Run{run}) },
			func(b *bytes.Buffer) error { return Markdown(b, []Run{run}) },
		} {
			if err := write(new(bytes.Buffer)); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestDifferencesOfRuns(t *testing.T) {
	_, page := render(t, trainings(2, 20))
	tables := elements(page, "table")
	rows := map[string][]string{}
	for _, row := range elements(tables[0], "tr") {
		var cells []string
		for _, cell := range elements(row, "td") {
			cells = append(cells, text(cell))
		}
		rows[text(elements(row, "th")[0])] = cells
	}
	for name, want := range map[string][]string{"learning rate": {"0.1", "0.2"}, "git commit": {"4f2a9c00", "4f2a9c01"}, "state": {"done", "done"}, "duration": {"40m20s", "45m20s"}} {
		if !slices.Equal(rows[name], want) {
			t.Errorf("%s: %q, want %q", name, rows[name], want)
		}
	}
	if rows["Python"] != nil || len(rows["last loss"]) != 2 || !strings.Contains(text(tables[1]), "Python3.12.4") {
		t.Errorf("rows %v, equal %q", rows, text(tables[1]))
	}
	for n, want := range map[int]int{2: 2, 3: 3, 4: 4} {
		_, page := render(t, trainings(n, 20))
		if got := len(drawn(figureOf(t, page, "accuracy"), "line c"+string(rune('0'+want-1)))); got != 1 {
			t.Errorf("%d runs: %d lines of the last one", n, got)
		}
	}
	_, page = render(t, trainings(5, 20))
	if row := elements(elements(page, "table")[0], "tr")[2]; !strings.HasPrefix(text(row), "resnet-lr1python train.py") {
		t.Errorf("the second run has the row %q", text(row))
	}
}

// Runs with equal names are labelled with their jobs' ids.
func TestLabelsOfRunsWithEqualNames(t *testing.T) {
	got := labels([]Run{{Job: "a", Name: "x"}, {Job: "b", Name: "x"}, {Job: "c", Name: "y"}, {Job: "d"}})
	if want := []string{"a", "b", "y", "d"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestPageWithoutMetrics(t *testing.T) {
	_, page := render(t, []Run{{Job: "job", Created: start, AsOf: start.Add(time.Minute), State: "running", Missing: []string{"host gpu02: timed out"}}})
	got := text(page)
	for _, want := range []string{"No training metrics are known", "--metric", "docs/launching.md", "running", "as of 2026-03-04 05:07:07 UTC", "1m0s", "Not in this report:host gpu02: timed out"} {
		if !strings.Contains(got, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if len(elements(page, "svg")) != 0 {
		t.Error("the page has a chart")
	}
	if _, page := render(t, nil); !strings.Contains(text(page), "No runs") {
		t.Error("a page of no run does not say so")
	}
}

// Many events are folded.
func TestManyEventsAreFolded(t *testing.T) {
	run := Run{Job: "job", Created: start}
	for _, folded := range []bool{false, true} {
		for len(run.Events) < maxOpen || folded && len(run.Events) == maxOpen {
			run.Events = append(run.Events, Event{start, Noted, "gpu01", "worker:0", "waits"})
		}
		_, page := render(t, []Run{run})
		details := elements(page, "details")[0]
		if open := slices.ContainsFunc(details.Attr, func(a html.Attribute) bool { return a.Key == "open" }); open == folded {
			t.Errorf("%d events are shown: %t", len(run.Events), open)
		}
	}
}

// Each CSS class in a chart has a rule, and each colour is defined for the
// light and the dark mode.
func TestCSSClassesHaveRules(t *testing.T) {
	light, dark, ok := strings.Cut(pageStyle, "@media(prefers-color-scheme:dark)")
	if !ok {
		t.Fatal("no dark colours")
	}
	dark, rules, _ := strings.Cut(dark, "}}")
	for _, colour := range regexp.MustCompile(`--[a-z0-9]+:#`).FindAllString(light, -1) {
		if !strings.Contains(dark, colour) {
			t.Errorf("%s has no dark colour", colour)
		}
	}
	for _, at := range regexp.MustCompile(`#[0-9a-f]{3,6}\b`).FindAllString(rules, -1) {
		if at != "#fff" { // of badges
			t.Errorf("a rule has the colour %s", at)
		}
	}
	run := training(0, 20)
	run.Events = append(run.Events, Event{Time: start, Kind: Hung})
	_, page := render(t, []Run{run})
	_, many := render(t, trainings(20, 20))
	for _, p := range []*html.Node{page, many} {
		for _, svg := range elements(p, "svg") {
			for n := range svg.Descendants() {
				for _, class := range strings.Fields(attr(n, "class")) {
					if class != "stroke" && class != "fill" && !strings.Contains(rules, "."+class) { // those two are chartdraw's
						t.Errorf("class %s has no rule", class)
					}
				}
				if n.Type == html.ElementNode && attr(n, "class") == "" {
					t.Errorf("a %s has no class", n.Data)
				}
			}
		}
	}
}

// Decoding the JSON report yields all data of the runs.
func TestJSONDecodesBack(t *testing.T) {
	run := training(0, 5)
	run.AsOf, run.Missing = start, []string{"host gpu02: timed out"}
	run.Series[0].Points[0].Last, run.Series[0].Points[1].Max, run.Series[0].Points[2].Min = metrics.Number(math.NaN()), metrics.Number(math.Inf(1)), metrics.Number(math.Inf(-1))
	var out bytes.Buffer
	if err := JSON(&out, []Run{run, {Job: "empty"}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`{"v":1,"runs":[{"job":`, `"last":"NaN"`, `"max":"+Inf"`, `"min":"-Inf"`, `{"job":"empty","state":""}]}`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in the JSON", want)
		}
	}
	var got jsonReport
	decoder := json.NewDecoder(&out)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&got); err != nil {
		t.Fatal(err)
	}
	one := got.Runs[0]
	if one.Job != run.Job || !one.Created.Equal(run.Created) || !one.AsOf.Equal(run.AsOf) || *one.Code != 0 || len(one.Facts) != len(run.Facts) || one.Events[7] != jsonEvent(run.Events[7]) ||
		one.Tails[0].Lines[1] != run.Tails[0].Lines[1] || one.Missing[0] != run.Missing[0] || one.Plan[0] != run.Plan[0] || len(one.Series) != len(run.Series) {
		t.Errorf("read %+v", one)
	}
	for i, s := range run.Series {
		for j, p := range s.Points {
			if read := one.Series[i].Points[j]; one.Series[i].Name != s.Name || one.Series[i].Task != s.Task || math.Float64bits(float64(read.Last)) != math.Float64bits(float64(p.Last)) && !math.IsNaN(float64(p.Last)) || !read.Time.Equal(p.Time) || read.Step != p.Step {
				t.Fatalf("series %s: point %d is %+v, want %+v", s.Name, j, read, p)
			}
		}
	}
}

// With the flag -update, the test rewrites the golden file.
func TestMarkdownMatchesGoldenFile(t *testing.T) {
	first, second := training(0, 20), training(1, 20)
	for _, run := range []*Run{&first, &second} {
		run.Series = slices.DeleteFunc(run.Series, func(s Series) bool { return s.Name != "accuracy" })
	}
	second.Name, second.Ended, second.AsOf, second.State, second.Verdict, second.Code = "a|b *c* <script>", time.Time{}, start.Add(time.Hour), "running", "", nil
	second.Tails[0].Lines = []string{"````", "text"}
	second.Series = nil
	var out bytes.Buffer
	if err := Markdown(&out, []Run{first, second}); err != nil {
		t.Fatal(err)
	}
	const name = "testdata/report.md"
	if *update {
		if err := os.WriteFile(name, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(out.Bytes(), want) {
		t.Errorf("not as in %s:\n%s", name, &out)
	}
}
