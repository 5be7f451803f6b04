import re
from pathlib import Path
exec(open('/tmp/x/mine/move_docs.py').read().split('assert')[0])
for f in ['README.md','CONTRIBUTING.md','SECURITY.md','tests/conformance/SCENARIOS.md','tests/conformance/DISRUPTION_SCENARIOS.md']:
    t=Path(f).read_text()
    n=re.sub(r'\[docs/[\w-]+\.md\]\((?:\.\./)*(docs/[\w/-]+\.md)',lambda m:m[0].replace(m[0][1:m[0].index(']')],m[1]),t)
    Path(f).write_text(n)
P=Path('tests/unit/cli/test_documentation.py'); t=P.read_text()
t=t.replace('r"docs/[\\w-]+\\.(?:md|yaml)(?:#[\\w-]+)?"','r"docs/[\\w/-]+\\.(?:md|yaml)(?:#[\\w-]+)?"')
t=t.replace('r"docs/\\w+\\.md|^#.*$"','r"docs/[\\w/-]+\\.md|^#.*$"')
t=t.replace('f"](decisions/{record})"','f"](../decisions/{record})"')
t=t.replace('''    whole = re.search(on_page, (ROOT / "docs" / page).read_text())
''','''    (where,) = (ROOT / "docs").rglob(page)
    whole = re.search(on_page, where.read_text())
''')
t=t.replace('[ROOT / "CONTRIBUTING.md", ROOT / "docs" / "explanation" / "architecture.md"], ids=name)','[ROOT / "CONTRIBUTING.md", ARCHITECTURE], ids=name)')
t=t.replace('''    architecture = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
''','''    architecture = ARCHITECTURE.read_text()
''')
t=t.replace('''LIBRARY = ROOT /''','''ARCHITECTURE = ROOT / "docs" / "explanation" / "architecture.md"
LIBRARY = ROOT /''',1)
t=t.replace('[ROOT / "layers", ROOT / "functions", ROOT / "src" / "shiplap_cdk"]','[ROOT / "layers", ROOT / "functions", ROOT / "src"]')
t=t.replace('''def test_every_decision_record_is''','''def test_the_index_leads_to_every_page() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    folders = ("tutorial", "how-to", "reference", "explanation", "developers")
    pages = sorted(page for folder in folders for page in (ROOT / "docs" / folder).glob("*.md"))
    assert [name(page) for page in pages if f"]({page.relative_to(ROOT / 'docs')})" not in index] == []


def test_every_decision_record_is''')
P.write_text(t)
P=Path('tests/unit/test_documented_figures.py'); t=P.read_text()
t=t.replace('''    return " ".join((DOCS / f"{name}.md").read_text()''','''    (found,) = DOCS.rglob(f"{name}.md")
    return " ".join(found.read_text()''')
P.write_text(t)
P=Path('tests/unit/cli/test_command_line.py'); t=P.read_text()
t=t.replace('''def test_the_readme_has_every_command_and_every_page() -> None:''','''def test_the_readme_has_every_command() -> None:''')
t=t.replace('''    pages = sorted(page.name for page in (root / "docs").glob("*.md"))
    assert [page for page in pages if f"](docs/{page})" not in readme] == []
''','')
P.write_text(t)
P=Path('src/shiplap_cdk/install_document.py'); t=P.read_text()
t=t.replace('''"write it as docs/how-to/deployment.md shows, or name another (--settings, or `npx cdk -c settings=PATH`)"''','''(
            "write it as docs/how-to/deployment.md shows, "
            "or name another (--settings, or `npx cdk -c settings=PATH`)"
        )''')
P.write_text(t)
# index
titles={'how-to':'How-to: one task, its steps','reference':'Reference: look it up','explanation':'Explanation: why it works so','developers':'For developers of Shiplap'}
intro={}
lines=['# Documentation','']
for d,ns in FOLDERS.items():
    lines+=[f'## {titles[d]}','']
    for n in ns.split():
        h=Path(f'docs/{d}/{n}.md').read_text().splitlines()[0][2:]
        lines.append(f'* [{h}]({d}/{n}.md)')
    lines.append('')
lines+=['## Decisions','','[The architecture page](explanation/architecture.md#decisions) lists the decision records.']
Path('docs/index.md').write_text('\n'.join(lines)+'\n')
