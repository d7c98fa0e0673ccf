package envsync

import (
	"strings"
	"testing"
)

const answer = "os=Linux\narch=aarch64\nhome=/home/a b\nuser=a\nuid=1000\nconnection=fe80::1%eth0 1 fe80::2%eth0 22\nhostname=h\nboot=b\nfsid=000102030405060708090a0b0c0d0e0f\n"

func TestParseFacts(t *testing.T) {
	f, err := ReadFacts(answer)
	if err != nil || f.Arch != "arm64" || f.Home != "/home/a b" || f.ServerAddr != "fe80::2" {
		t.Errorf("%+v %v", f, err)
	}
	for old, wrong := range map[string]string{
		"uid=1000":     "uid=x",
		"home=/home":   "home=home",
		"os=Linux\n":   "",
		"fsid=00":      "fsid=zz",
		"hostname=h":   "hostname=\x1b[31mh",
		"arch=aarch64": "arch=",
	} {
		if _, err := ReadFacts(strings.Replace(answer, old, wrong, 1)); err == nil {
			t.Errorf("%q was taken", wrong)
		}
	}
}

func FuzzParseFacts(f *testing.F) {
	f.Add(answer)
	f.Add("")
	f.Fuzz(func(t *testing.T, out string) {
		facts, err := ReadFacts(out)
		if err == nil && (facts.Home[0] != '/' || facts.OS == "" || facts.Arch == "" || facts.UID < 0 || len(facts.FileSystem) != 32) {
			t.Fatalf("%q gives %+v", out, facts)
		}
	})
}
