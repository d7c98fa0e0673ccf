package logs

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

func TestAppendSafe(t *testing.T) {
	tests := []struct{ in, plain, coloured string }{
		{"text\tmore", "text\tmore", ""},
		{"caf\u00e9 \u65e5\u672c \U0001f600", "caf\u00e9 \u65e5\u672c \U0001f600", ""},
		{"\x1b[31mred\x1b[0m", "red", "\x1b[31mred\x1b[0m\x1b[m"},
		{"\x1b[38:2::1:2:3mx", "x", "\x1b[38:2::1:2:3mx\x1b[m"},
		{"\x1b[mx", "x", "\x1b[mx\x1b[m"},
		{"\x1b[2J\x1b[1;1H\x1b[?1049hx\x1b[K", "x", ""},
		{"\x1b[>4;2mx\x1b[?4mx\x1b[1 mx", "xxx", ""},
		{"\x1b[" + strings.Repeat("1;", 40) + "mx", "x", ""},
		{"\x1b]0;title\x07x\x1b]52;c;AAAA\x1b\\y", "xy", ""},
		{"\x1b]8;;http://a/\x1b\\link\x1b]8;;\x1b\\", "link", ""},
		{"\x1bP+q544e\x1b\\x\x1b_apc\x1b\\y\x1b^pm\x1b\\z", "xyz", ""},
		{"\x1bc\x1b7\x1b(B\x1b=x\x1b#8", "x", ""},
		{"\x1b]0;never ends", `\x1b]0;never ends`, ""},
		{"\x1b]0;a\x1b[2Jb", `\x1b]0;ab`, ""},
		{"\x1b[12", `\x1b[12`, ""},
		{"\x1b[12\x00", `\x1b[12\x00`, ""},
		{"\x1b", `\x1b`, ""},
		{"\x1b\x1b[2Jx", `\x1bx`, ""},
		{"a\bb\x07\x00\x7f\v\f\r", `a\x08b\x07\x00\x7f\x0b\x0c\x0d`, ""},
		{"\x9b2J \u009b2J \xff", `\x9b2J \u009b2J \xff`, ""},
		{"\u0080\u009f\u00a0", "\\u0080\\u009f\u00a0", ""}, // the first C1 control, the last one, and the character after them
		{"a \ufffd b", "a \ufffd b", ""},                   // a replacement character that the program printed itself
		{"\u202eevil\u2066\u200f\u061c\u2028", `\u202eevil\u2066\u200f\u061c\u2028`, ""},
	}
	for _, tt := range tests {
		if tt.coloured == "" {
			tt.coloured = tt.plain
		}
		if got := string(appendSafe(nil, []byte(tt.in), false)); got != tt.plain {
			t.Errorf("%q plain: %q, want %q", tt.in, got, tt.plain)
		}
		if got := string(appendSafe([]byte(">"), []byte(tt.in), true)); got != ">"+tt.coloured {
			t.Errorf("%q coloured: %q, want %q", tt.in, got, tt.coloured)
		}
	}
}

var sgrOnly = regexp.MustCompile("\x1b\\[[0-9;:]{0,61}m")

func FuzzAppendSafe(f *testing.F) {
	f.Add([]byte("\x1b[31mred\x1b]0;t\x07 \u202e \x9b \xff\x1b\\"))
	f.Add([]byte("\x1b[\x1b[1m2J"))
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, colour := range []bool{false, true} {
			out := appendSafe(nil, in, colour)
			rest := out
			if colour {
				rest = sgrOnly.ReplaceAll(out, nil)
				if len(rest) < len(out) && !bytes.HasSuffix(out, []byte(ansi.ResetStyle)) {
					t.Errorf("%q: colour is not reset in %q", in, out)
				}
			}
			if !utf8.Valid(rest) {
				t.Errorf("%q: %q is not UTF-8", in, out)
			}
			if i := bytes.IndexFunc(rest, steersTerminal); i >= 0 {
				t.Errorf("%q: control at %d of %q", in, i, rest)
			}
		}
	})
}

// steersTerminal is an independent implementation of steers for tests: it does
// not use the tables of the code under test.
func steersTerminal(r rune) bool {
	return r != '\t' && r < ' ' || r >= 0x7f && r < 0xa0 ||
		strings.ContainsRune("\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069", r)
}

// Escape keeps the visible characters of a line, and removes colours and line
// ends.
func TestEscape(t *testing.T) {
	for in, want := range map[string]string{
		"plain\ttext ü 日 \ufffd":                   "plain\ttext ü 日 \ufffd",
		"\x1b[31mred\x1b[0m \x1b[1;38;5;9mx\x1b[m": "red x",
		"\x1b[2J\x1b[8x\x1b]0;title\x07\x1bc\x1b":  `\x1b[2J\x1b[8x\x1b]0;title\x07\x1bc\x1b`,
		"a\r\nplx: b\x00":                          `a\x0d\x0aplx: b\x00`,
		"\x9b5n\xc2\x9b5n\u202e":                   `\x9b5n\u009b5n\u202e`,
		"\x1b[" + strings.Repeat("1;", 40) + "m":   `\x1b[` + strings.Repeat("1;", 40) + "m",
	} {
		if got := Escape(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// Host and task names in a prefix are escaped, because a remote host may
// choose them.
func TestPrefixIsHarmless(t *testing.T) {
	p := newColumns(Options{}).prefix(origin{"h\x1b[2J", Source{"t\x9b", Stderr}}, Screen{})
	if want := `t\x9b h\x1b[2J ! `; string(p.first) != want {
		t.Errorf("%q, want %q", p.first, want)
	}
}

func FuzzEscape(f *testing.F) {
	f.Add("\x1b[\x1b[1m2J \u202e \x9b \xff\n")
	f.Fuzz(func(t *testing.T, in string) {
		out := Escape(in)
		if i := strings.IndexFunc(out, steersTerminal); i >= 0 || !utf8.ValidString(out) || strings.Contains(out, "\n") {
			t.Errorf("%q: %q", in, out)
		}
		if Escape(out) != out {
			t.Errorf("%q: again it is %q", out, Escape(out))
		}
	})
}

// naiveSplit does the same as the splitter, for a whole text and without a
// length limit.
func naiveSplit(text string, redraws bool) (lines []string) {
	for l := range strings.SplitAfterSeq(text, "\n") {
		body, ended := strings.CutSuffix(l, "\n")
		if redraws {
			body = lastState(body)
		}
		lines = append(lines, body+map[bool]string{true: "\n"}[ended])
	}
	return slices.DeleteFunc(lines, func(s string) bool { return s == "" })
}

// lastState returns what a terminal finally shows of a line with carriage
// returns, if each state of the line is at least as long as the state before.
func lastState(line string) string {
	states := slices.DeleteFunc(strings.Split(line, "\r"), func(s string) bool { return s == "" })
	switch {
	case len(states) == 0:
		return ""
	case strings.HasSuffix(line, "\r") && strings.TrimSpace(states[len(states)-1]) == "":
		return "" // erased
	}
	return states[len(states)-1]
}

// split runs the splitter on text in chunks of size bytes, with lines of at
// most limit bytes.
func split(t *testing.T, text string, redraws bool, size, limit int) (lines []string) {
	t.Helper()
	s := splitter{limit: limit, redraws: redraws, emit: func(l line) {
		if got := text[l.offset:][:len(l.text)]; got != string(l.text) && !redraws {
			t.Errorf("offset %d has %q, the line %q", l.offset, got, l.text)
		}
		if len(l.text) > limit {
			t.Errorf("%d bytes in a piece, limit %d", len(l.text), limit)
		}
		end := "\n"
		if l.unended {
			end = ""
		}
		if l.continued {
			lines[len(lines)-1] += string(l.text) + end
		} else {
			lines = append(lines, string(l.text)+end)
		}
	}}
	for at := 0; at < len(text); at += size {
		s.feed([]byte(text[at:min(at+size, len(text))]))
	}
	s.flush()
	if s.next != int64(len(text)) {
		t.Errorf("next %d, text has %d bytes", s.next, len(text))
	}
	return lines
}

func FuzzSplitter(f *testing.F) {
	f.Add("one\ntwo\r\n\rthree\r four\r\r\n\n\r\nend\r", uint8(3), uint8(4))
	f.Add("\r\n\r\n", uint8(1), uint8(1))
	f.Add("00\r00\n\r00\r    \r\n", uint8(9), uint8(9))
	f.Add("\r 10%\r 20%\r100%\n\r 10%\r    \rnext\n\r 50%", uint8(6), uint8(9))
	f.Fuzz(func(t *testing.T, text string, size, limit uint8) {
		for redraws, limit := range map[bool]int{false: 1 + int(limit), true: 1 << 20} {
			if redraws && strings.ContainsAny(text, "\b\x1b") {
				continue // TestRedrawnRowsLeaveTheirLastStates has these
			}
			got := split(t, text, redraws, 1+int(size), limit)
			if want := naiveSplit(text, redraws); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
				t.Errorf("redraws %v: %q\ngot  %q\nwant %q", redraws, text, got, want)
			}
		}
	})
}

// Exactly the runes that control a terminal or reorder text are escaped.
func TestSteeringRunes(t *testing.T) {
	steering := map[rune]bool{0x061c: true, 0x200e: true, 0x200f: true}
	for _, span := range [][2]rune{{0x80, 0x9f}, {0x2028, 0x202e}, {0x2066, 0x2069}} {
		for r := span[0]; r <= span[1]; r++ {
			steering[r] = true
		}
	}
	for r := rune(0x7f); r < 0x2100; r++ {
		visible := fmt.Sprintf(`\u%04x`, r)
		shown := string(appendSafe(nil, []byte(string(r)), false))
		if (shown == visible) != steering[r] || r > 0x7f && !steering[r] && shown != string(r) {
			t.Errorf("%U is shown as %q", r, shown)
		}
		if escaped := Escape(string(r)); escaped != shown {
			t.Errorf("%U is escaped as %q", r, escaped)
		}
		object := string(appendJSON(nil, "h", worker0, time.Time{}, line{text: []byte(string(r))}))
		if strings.Contains(object, visible) != (steering[r] || r == 0x7f) {
			t.Errorf("%U is written as %s", r, object)
		}
	}
}

// Cursor movements are executed only in UTF-8 text: binary output of a program
// stays unchanged.
func TestCursorCommandsNeedUTF8(t *testing.T) {
	for _, c := range []struct {
		text  string
		block bool
	}{
		{"one\rtwo\x1b[A", true}, {"on\xff\rtwo\x1b[A", true}, {"one\rt\xffo\x1b[A", false}, {"one\rt\xff|o\x1b[A", false}, {"one\x1b[A", true}, {"on\xffe\x1b[A", false},
	} {
		s := splitter{limit: 100, redraws: true, emit: func(line) {}}
		for piece := range strings.SplitSeq(c.text, "|") {
			s.feed([]byte(piece))
		}
		if (s.block != nil) != c.block {
			t.Errorf("%q: a block is %v, want %v", c.text, s.block != nil, c.block)
		}
	}
}
