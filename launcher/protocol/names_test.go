package protocol

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestEscapeName(t *testing.T) {
	for name, want := range map[string]string{
		"runs/a b.pt": "runs/a b.pt", "café-模型.pt": "café-模型.pt", `50%\new`: `50%\new`, `\xE9`: `\xE9`, `\xg0`: `\xg0`, `a\x`: `a\x`, "\ufffd": "\ufffd",
		"caf\xe9.pt": `caf\xe9.pt`, "new\nline": `new\x0aline`, "\x1b[2J": `\x1b[2J`, "\x7f\u0085": `\x7f\xc2\x85`,
		`caf\xe9.pt`: `caf\x5cxe9.pt`, "\\\xe9": `\\xe9`, "\\x\xe9": `\x\xe9`, "\\xe\n": `\xe\x0a`,
	} {
		if got := EscapeName(name); got != want {
			t.Errorf("%q becomes %q, want %q", name, got, want)
		}
	}
}

// An error that the file does not exist does not set Lost.
func TestDamaged(t *testing.T) {
	gone := HostOutput{}.Damaged(fmt.Errorf("open a: %w", fs.ErrNotExist))
	closed := HostOutput{}.Read(0, "", fmt.Errorf("open a\xff: %w", fs.ErrPermission))
	if gone.Lost || gone.Damage == "" || !closed.Lost || closed.Damage != "open a?: permission denied" {
		t.Errorf("gone %+v, closed %+v", gone, closed)
	}
}

// The escaped name is plain, and leads back to the one name that it stands for.
func FuzzEscapeName(f *testing.F) {
	for _, name := range []string{"a.pt", "caf\xe9.pt", `caf\xe9.pt`, "\\\\x\xff\n", `\x5cx5c`} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		plain := EscapeName(name)
		if back := UnescapeName(plain); back != name {
			t.Errorf("%q becomes %q and then %q", name, plain, back)
		}
		if !utf8.ValidString(plain) || strings.ContainsFunc(plain, unicode.IsControl) || strings.Count(plain, "/") != strings.Count(name, "/") {
			t.Errorf("%q becomes %q", name, plain)
		}
		if plainer := EscapeName(plain); plainer == plain && plain != name {
			t.Errorf("%q and %q have the same escaped name", name, plain)
		}
	})
}
