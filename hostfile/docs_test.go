package hostfile

import (
	"os"
	"strings"
	"testing"
)

// The first example of the reference page parses to the expected hosts.
func TestReferencePageExampleParses(t *testing.T) {
	text, err := os.ReadFile("../docs/resource-file.md")
	if err != nil {
		t.Fatal(err)
	}
	hosts, err := Parse(strings.NewReader(firstBlock(t, string(text))), "docs/resource-file.md")
	if err != nil {
		t.Fatal(err)
	}
	const want = "10.0.0.1: 0,1,2,3\ngpu02.example.org\nalice@10.0.0.3:2222: cpu*2\n" +
		"[fd00::4]: 0,1\nstore1: ps\ngpu05 slots=8\n"
	if got := Format(hosts); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// The reference page's example of options and variables parses to the
// expected hosts.
func TestSettingsExampleParses(t *testing.T) {
	text, err := os.ReadFile("../docs/resource-file.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Settings of one host\n")
	hosts, err := Parse(strings.NewReader(firstBlock(t, section)), "docs/resource-file.md")
	if err != nil {
		t.Fatal(err)
	}
	const want = "gpu01: 0,1 nic=ib0\ngpu02: 0,1 nic=ib1 NCCL_DEBUG=INFO DATA=\"/mnt/my data\"\n"
	if got := Format(hosts); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// firstBlock returns the first code block of a documentation page.
func firstBlock(t *testing.T, page string) string {
	t.Helper()
	_, after, _ := strings.Cut(page, "\n```text\n")
	block, _, found := strings.Cut(after, "\n```\n")
	if !found {
		t.Fatal("no example in the page")
	}
	return block + "\n"
}
