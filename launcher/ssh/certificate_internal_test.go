package ssh

import (
	"slices"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"
)

// A certificate that has expired or is not valid yet is reported with the
// reason; a valid one is not.
func TestJudgeCertificates(t *testing.T) {
	now := uint64(time.Now().Unix())
	day := func(t uint64) string { return time.Unix(int64(t), 0).Format("2006-01-02 15:04") }
	const hour = 3600
	for name, c := range map[string]struct {
		after, before uint64
		unused        bool
		want          []string
	}{
		"valid":            {after: now - hour, before: now + hour},
		"valid for ever":   {after: 0, before: gossh.CertTimeInfinity},
		"valid from now":   {after: now, before: now + hour},
		"expired just now": {after: now - hour, before: now, want: []string{"cert: it expired on " + day(now)}},
		"not valid yet":    {after: now + hour, before: now + 2*hour, want: []string{"cert: it is valid from " + day(now+hour)}},
		"without its key":  {after: now - hour, before: now + hour, unused: true, want: []string{"cert: its key is neither in a file nor in the agent"}},
	} {
		o := &offer{certs: []*certificate{{Certificate: &gossh.Certificate{ValidAfter: c.after, ValidBefore: c.before}, path: "cert", used: !c.unused}}}
		o.checkCertificates()
		if !slices.Equal(o.problems, c.want) {
			t.Errorf("%s: got %q, want %q", name, o.problems, c.want)
		}
	}
}
