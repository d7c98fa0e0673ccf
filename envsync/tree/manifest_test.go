package tree

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func example() Manifest {
	return Manifest{Entries: []Entry{
		{Path: "a", Kind: Directory, Mode: 0o755},
		{Path: "a-b", Kind: File, Mode: 0o644, Size: 3, Sum: Sum{1}},
		{Path: "a/x y\xff", Kind: File, Mode: 0o755, Size: maxFile, Sum: Sum{2}},
		{Path: "c", Kind: File, Size: 5, Sum: Sum{3}, Chunks: "0123456789abcdef\x02\x00\x00\x000123456789abcdef\x03\x00\x00\x00"},
		{Path: "l", Kind: Link, Target: "a/x y"},
	}}
}

func TestManifestRoundTrip(t *testing.T) {
	for _, m := range []Manifest{{}, example()} {
		back, err := Decode(m.Encode())
		if err != nil || !reflect.DeepEqual(back, m) {
			t.Errorf("back came %v, %v; want %v", back, err, m)
		}
	}
}

func TestManifestRefused(t *testing.T) {
	file := func(p string) Entry { return Entry{Path: p, Kind: File} }
	link := func(p, target string) Entry { return Entry{Path: p, Kind: Link, Target: target} }
	folder := func(p string) Entry { return Entry{Path: p, Kind: Directory} }
	for name, entries := range map[string][]Entry{
		"leads out of the folder":     {file("../x")},
		"leads out of the folder ":    {file("/etc/passwd")},
		"leads out of the folder  ":   {file("")},
		"leads out of the folder   ":  {file("a//b")},
		"leads out of the folder    ": {file(".")},
		"line feed":                   {file("a\nb")},
		"number is out of range":      {file(strings.Repeat("x", maxName+1))},
		"not in order":                {file("b"), file("a")},
		"not in order ":               {file("a"), file("a")},
		"its folder is not listed":    {file("a/b")},
		"its folder is not listed ":   {file("a"), file("a/b")},
		"its folder is not listed  ":  {link("a", "b"), file("a/x"), folder("b")},
		"out of range":                {{Path: "a", Kind: File, Size: maxFile + 1}},
		"not as long as the file":     {{Path: "a", Kind: File, Size: 6, Chunks: example().Entries[3].Chunks}},
		"not as long as the file ":    {{Path: "a", Kind: File, Size: 4, Chunks: example().Entries[3].Chunks}},
		"a chunk has a wrong length":  {{Path: "a", Kind: File, Size: 1 << 20, Chunks: "0123456789abcdef\x00\x00\x10\x00"}},
		"unknown kind":                {{Path: "a", Kind: 's'}},
		`"../b" leads out`:            {link("a", "../b")},
		`"/etc" leads out`:            {link("a", "/etc")},
		`"../../x" leads out`:         {folder("d"), link("d/a", "../../x")},
		"its target is too long":      {link("a", "b\nc")},
		"the link to \"\" leads out":  {link("a", "")},
		`"x/../../etc" leads out`:     {folder("d"), link("d/a", "x/../../etc")},
	} {
		_, err := Decode(Manifest{entries}.Encode())
		if err == nil || !strings.Contains(err.Error(), strings.TrimSpace(name)) {
			t.Errorf("%.200s: %v, want %q", fmt.Sprint(entries), err, name)
		}
	}
	for name, b := range map[string][]byte{
		"not a list of files": []byte("plx tree 2\n"),
		"cut off":             example().Encode()[:40],
		"out of range":        []byte(magic + "d\x01a\xff\x7f"),
		"out of range ":       []byte(magic + "d\x81\x00a\x01"), // the number 1, encoded in two bytes instead of one
		"out of range  ":      []byte(magic + "d\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
	} {
		if _, err := Decode(b); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(name)) {
			t.Errorf("%q: %v, want %q", b, err, name)
		}
	}
}

// Encode returns the same bytes for whatever Decode accepts.
func FuzzDecode(f *testing.F) {
	f.Add(example().Encode())
	f.Add([]byte(magic))
	f.Add([]byte(magic + "d\x01a\x01"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Decode(b)
		if err != nil {
			return
		}
		if !bytes.Equal(m.Encode(), b) {
			t.Fatalf("%q was accepted, and is written as %q", b, m.Encode())
		}
		if _, err := NewSet(m).Pieces(m); err != nil {
			t.Fatal(err)
		}
	})
}
