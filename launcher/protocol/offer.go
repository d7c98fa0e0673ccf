package protocol

// Offer is what "agent offer" reads, one line of JSON: where it gives its own program to other
// hosts, and what they must tell. It answers the port in a line.
type Offer struct {
	Addr  string `json:"addr"`
	Low   int    `json:"low,omitempty"` // as in Spec.PortLow
	High  int    `json:"high,omitempty"`
	Token string `json:"token"`
}
