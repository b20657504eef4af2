package artifact

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
)

// MediaTypeSPDX is the media type of what SPDX returns.
const MediaTypeSPDX = "application/spdx+json"

// SPDX returns the modules that a program is linked from as an SPDX 2.3 document in JSON: path,
// version and sum of each, and the Go toolchain. The info is what debug/buildinfo reads from the
// program; set info.Main.Version if the build did not. The digest is that of what the document is
// about, such as "sha256:0123…": the name space of the document has it. Created is the date of the
// commit. It fails on a digest that is not sha256 and on a program without a main module.
func SPDX(info *debug.BuildInfo, digest string, created time.Time) ([]byte, error) {
	encoded, ok := strings.CutPrefix(digest, "sha256:")
	if sum, err := hex.DecodeString(encoded); !ok || err != nil || len(sum) != 32 {
		return nil, fmt.Errorf("cannot list the modules of %q: its digest is not sha256:<64 hexadecimal digits>", digest)
	}
	if info.Main.Path == "" {
		return nil, fmt.Errorf("cannot list the modules of %s: built without modules", digest)
	}
	name := info.Path[strings.LastIndex(info.Path, "/")+1:]
	doc := &v2_3.Document{
		SPDXVersion: v2_3.Version, DataLicense: v2_3.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName:      name,
		DocumentNamespace: "https://github.com/kyma-project/eventmesh-migration/spdx/" + name + "-" + encoded,
		CreationInfo: &v2_3.CreationInfo{
			Created:  created.UTC().Format("2006-01-02T15:04:05Z"),
			Creators: []common.Creator{{CreatorType: "Tool", Creator: "eventmesh-migration-artifact"}},
		},
	}
	ids := map[common.ElementID]bool{}
	add := func(m *debug.Module) *v2_3.Package {
		p := packageOf(m, ids)
		doc.Packages = append(doc.Packages, p)
		return p
	}
	main := add(&info.Main)
	main.PrimaryPackagePurpose = "APPLICATION"
	main.PackageComment = "program " + info.Path
	doc.Relationships = append(doc.Relationships, &v2_3.Relationship{
		RefA: common.MakeDocElementID("", "DOCUMENT"), RefB: common.MakeDocElementID("", string(main.PackageSPDXIdentifier)), Relationship: common.TypeRelationshipDescribe,
	})
	// Go names the toolchain "go1.26.8", or "go1.26.8 X:experiment".
	version, _, _ := strings.Cut(strings.TrimPrefix(info.GoVersion, "go"), " ")
	deps := []*debug.Module{{Path: "stdlib", Version: version}}
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			dep = dep.Replace
		}
		deps = append(deps, dep)
	}
	slices.SortFunc(deps, func(a, b *debug.Module) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Version, b.Version))
	})
	for _, dep := range deps {
		p := add(dep)
		if dep.Path == "stdlib" {
			p.PackageComment = "Go toolchain and library " + info.GoVersion
		}
		doc.Relationships = append(doc.Relationships, &v2_3.Relationship{
			RefA: common.MakeDocElementID("", string(main.PackageSPDXIdentifier)), RefB: common.MakeDocElementID("", string(p.PackageSPDXIdentifier)),
			Relationship: common.TypeRelationshipDependsOn,
		})
	}
	var out bytes.Buffer
	if err := json.Write(doc, &out, json.Indent(" "), json.EscapeHTML(false)); err != nil {
		return nil, fmt.Errorf("cannot list the modules of %s: %w", digest, err)
	}
	return out.Bytes(), nil
}

// packageOf describes one module. The sum is that of go.sum, which covers the files of the module
// and not one archive; so it is no SPDX checksum.
func packageOf(m *debug.Module, ids map[common.ElementID]bool) *v2_3.Package {
	id := idOf(m.Path+"-"+m.Version, ids)
	p := &v2_3.Package{
		PackageName: m.Path, PackageSPDXIdentifier: id, PackageVersion: m.Version, PackageDownloadLocation: "NOASSERTION",
		IsFilesAnalyzedTagPresent: true, PackageLicenseConcluded: "NOASSERTION", PackageLicenseDeclared: "NOASSERTION", PackageCopyrightText: "NOASSERTION",
		PackageExternalReferences: []*v2_3.PackageExternalReference{{Category: "PACKAGE-MANAGER", RefType: "purl", Locator: "pkg:golang/" + m.Path + "@" + m.Version}},
	}
	if m.Sum != "" {
		p.PackageSourceInfo = "go.sum " + m.Sum
	}
	return p
}

// idOf returns an identifier that no other package of the document has. SPDX allows letters,
// digits, "." and "-".
func idOf(name string, ids map[common.ElementID]bool) common.ElementID {
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' {
			return r
		}
		return '-'
	}, name)
	id := common.ElementID("Package-" + clean)
	for n := 2; ids[id]; n++ {
		id = common.ElementID(fmt.Sprintf("Package-%s-%d", clean, n))
	}
	ids[id] = true
	return id
}
