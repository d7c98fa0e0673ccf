package tree

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// One error lists everything that cannot be sent, with a command that excludes
// all of it.
func TestErrorNamesAllFilesThatCannotBeSent(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	write(t, dir, map[string]string{"train.py": "", "sub/": "", "a b*c[1]/": ""})
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: "sub/sock"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, link := range []string{"data", "sub/out", "a b*c[1]/it's"} {
		if err := os.Symlink("/mnt/data", link); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile("sub/line\nfeed", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Scan(t.Context(), dir, Options{})
	var refused *RefusedError
	if !errors.As(err, &refused) {
		t.Fatalf("%v, want all that cannot be sent", err)
	}
	for _, want := range []string{"5 files, links or folders in it cannot be sent:", "\n\"a b*c[1]/it's\": the link to \"/mnt/data\" leads out", "\ndata: the link",
		"\nsub/sock: it is a socket", "\n\"sub/line\\nfeed\": its name has a line feed"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	command, more, _ := strings.Cut(strings.TrimPrefix(refused.Hint(), "to leave it here: "), "; ")
	if !strings.Contains(more, "--keep-links") {
		t.Errorf("hint %q does not tell how to send links", refused.Hint())
	}
	if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
	if got, want := files(scan(t, dir).Manifest), []string{".plxignore", "train.py"}; !slices.Equal(got, want) {
		t.Errorf("after %s: sent %q, want %q", command, got, want)
	}
}

// With KeepLinks, a link that points out of the folder is sent unchanged.
func TestKeepLinksSendsLinksThatLeadOut(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"sub/": ""})
	for link, target := range map[string]string{"data": "/mnt/data", "sub/up": "../../x", "sub/in": "../sub"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	f, err := Scan(t.Context(), dir, Options{KeepLinks: true})
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := Decode(f.Encode())
	if err != nil {
		t.Fatal(err)
	}
	want := []Entry{{Path: "data", Kind: Outside, Target: "/mnt/data"}, {Path: "sub", Kind: Directory, Mode: 0o755},
		{Path: "sub/in", Kind: Link, Target: "../sub"}, {Path: "sub/up", Kind: Outside, Target: "../../x"}}
	if !slices.Equal(decoded.Entries, want) {
		t.Errorf("sent %+v, want %+v", decoded.Entries, want)
	}
}

// The error message lists only some of many entries.
func TestErrorNamesSomeOfManyRefusedFiles(t *testing.T) {
	e := &RefusedError{root: "/x"}
	for range 22 {
		e.all = append(e.all, refused{"a", errLeadsOut})
	}
	if text := e.Error(); strings.Count(text, "\n") != 21 || !strings.HasSuffix(text, "\nand 2 more") {
		t.Error(text)
	}
}
