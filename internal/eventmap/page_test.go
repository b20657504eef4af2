package eventmap

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"
)

// large is a cluster with n Applications in the middle of its migration; their
// events go to eight namespaces.
func large(n int) *Map {
	namespaces := []string{"analytics", "crm", "finance", "fulfilment", "loyalty", "marketing", "shop", "support"}
	names := []string{"billing", "commerce", "erp", "inventory", "logistics", "newsletter", "payments", "pricing", "tickets", "warehouse"}
	m := &Map{}
	for i := range n {
		app := fmt.Sprintf("%s-%02d", names[i%len(names)], i/len(names)+1)
		m.Applications = append(m.Applications, Source{Name: app, Path: []Path{PathMesh, PathMesh, PathMesh, PathBoth, PathEventBus}[i%5]})
		for j := range 1 + i%3 {
			ns := namespaces[(i+3*j)%len(namespaces)]
			f := Flow{Application: app, EventType: "order.created", Version: "v1", Namespace: ns, Subscriber: fmt.Sprintf("http://on-%s-%d.%s:8080/", app, j, ns)}
			switch {
			case i%5 == 4: // its event-service posts to the Event Bus
				f.Before, f.After = Route{Object: "lambda-x"}, Route{Object: "x"}
			case (i+j)%7 == 3:
				f.Before = Route{Object: "lambda-x"}
			case (i+j)%11 == 5:
				f.Before, f.After = Route{Object: "lambda-x"}, Route{Object: "x", Problem: "not ready"}
			default:
				f.After = Route{Object: "x"}
			}
			m.Flows = append(m.Flows, f)
		}
	}
	return m
}

// TestPictureIsReadable holds for any number of Applications: every name is drawn,
// within the picture, on a line of its own.
func TestPictureIsReadable(t *testing.T) {
	for _, n := range []int{0, 1, 3, 50, 200} {
		m := large(n)
		var page strings.Builder
		if err := m.WriteHTML(&page, "x", time.Unix(0, 0)); err != nil {
			t.Fatal(err)
		}
		_, picture, _ := strings.Cut(page.String(), "<svg")
		picture, _, _ = strings.Cut(picture, "</svg>")
		decoder := xml.NewDecoder(strings.NewReader("<svg" + picture + "</svg>"))
		taken := map[string]string{}
		texts, height := 0, 0
		var x, y string
		for {
			token, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%d Applications: the picture is no XML: %v", n, err)
			}
			switch token := token.(type) {
			case xml.StartElement:
				attributes := map[string]string{}
				for _, a := range token.Attr {
					attributes[a.Name.Local] = a.Value
				}
				if token.Name.Local == "svg" {
					height, _ = strconv.Atoi(strings.Fields(attributes["viewBox"])[3])
				}
				if x = ""; token.Name.Local == "text" {
					x, y = attributes["x"], attributes["y"]
				}
			case xml.EndElement:
				x = ""
			case xml.CharData:
				if x == "" || len(token) == 0 {
					continue
				}
				texts++
				at, _ := strconv.Atoi(y)
				if at <= 0 || at >= height {
					t.Errorf("%d Applications: %q is at %s, outside of a picture %d high", n, token, y, height)
				}
				// Each column has lines of 13 pixels.
				for off := -12; off <= 12; off++ {
					if other := taken[fmt.Sprint(x, " ", at+off)]; other != "" && other != string(token) {
						t.Errorf("%d Applications: %q and %q are on top of each other", n, token, other)
					}
				}
				taken[x+" "+y] = string(token)
			}
		}
		if texts < n+len(m.Flows) {
			t.Errorf("%d Applications: %d texts, want one for each of them and of %d subscribers", n, texts, len(m.Flows))
		}
	}
}

// TestNamesAreTexts puts what would be markup into names.
func TestNamesAreTexts(t *testing.T) {
	const evil = `"]</title><script>alert(1)</script>`
	m := &Map{
		Applications: []Source{{Name: evil, Path: evil}},
		Flows:        []Flow{{Application: evil, EventType: evil, Version: evil, Namespace: evil, Subscriber: evil, After: Route{Object: evil, Problem: evil}}},
	}
	for name, write := range map[string]func(io.Writer) error{
		"html":    func(w io.Writer) error { return m.WriteHTML(w, evil, time.Unix(0, 0)) },
		"mermaid": m.WriteMermaid,
	} {
		var out bytes.Buffer
		if err := write(&out); err != nil {
			t.Fatal(err)
		}
		for _, markup := range []string{"<script>", `"]&lt;`, `"]#lt;`} {
			if strings.Contains(out.String(), markup) {
				t.Errorf("%s: a name became markup, %s:\n%s", name, markup, &out)
			}
		}
	}
}
