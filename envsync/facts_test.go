package envsync

import (
	"strings"
	"testing"
)

const answer = `{"os":"linux","arch":"arm64","serverAddr":"fe80::2","hostName":"h","boot":"b","fsid":"000102030405060708090a0b0c0d0e0f"}`

func TestReadFacts(t *testing.T) {
	f, err := ReadFacts([]byte(answer))
	if want := (Facts{Platform{"linux", "arm64"}, "fe80::2", "h", "b", "000102030405060708090a0b0c0d0e0f"}); err != nil || f != want {
		t.Errorf("%+v %v", f, err)
	}
	for old, wrong := range map[string]string{
		`"os":"linux"`:    `"os":""`,
		`"os"`:            `"x"`,
		`"fsid":"00`:      `"fsid":"zz`,
		`"hostName":"h"`:  `"hostName":"\u001b[31mh"`,
		`"arch":"arm64",`: ``,
		`}`:               ``,
	} {
		if f, err := ReadFacts([]byte(strings.Replace(answer, old, wrong, 1))); err == nil || f != (Facts{}) {
			t.Errorf("%q was taken: %+v", wrong, f)
		}
	}
}

func TestPlatformOf(t *testing.T) {
	for machine, want := range map[string]Platform{"aarch64": {"linux", "arm64"}, "x86_64": {"linux", "amd64"}, "RISCV64": {"linux", "riscv64"}} {
		if got := PlatformOf("Linux", machine); got != want {
			t.Errorf("%s is %s", machine, got)
		}
	}
}

func FuzzParseFacts(f *testing.F) {
	f.Add(answer)
	f.Add("")
	f.Fuzz(func(t *testing.T, out string) {
		facts, err := ReadFacts([]byte(out))
		if err == nil && (facts.OS == "" || facts.Arch == "" || len(facts.FileSystem) != 32) {
			t.Fatalf("%q gives %+v", out, facts)
		}
	})
}
