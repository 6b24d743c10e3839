//! Suite files and what they come to.

use tonnage_core::job::JobSource;

use super::*;

fn suite(source: &str) -> SuiteFile {
    SuiteFile::read(source).unwrap_or_else(|error| panic!("{error}: {source}"))
}

fn names(source: &str, words: &[&str], groups: &[&str]) -> Result<Vec<String>, JobError> {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let typed = Typed::read(&owned(words), &owned(groups))?;
    Ok(expand_file(&SuiteFile::read(source)?, &typed)?.into_iter().map(|one| one.name).collect())
}

/// No job: keys are parameters.
const PLAIN: &str = "command = [\"python\", \"t.py\"]\nseeds = 3\n[parameters]\na = 1\nb = 0.5\nc = \"x\"\n";

#[test]
fn lists_make_a_configuration_of_each_value() {
    let text = "job = \"job.toml\"\n[set]\ngpu = \"h100\"\n[[configuration]]\nname = \"cycles\"\ncount = 3\n\
        model.H_cycles = [1, 2]\nmodel.L_cycles = [1, 2]\n[[configuration]]\nname = \"wide\"\nmodel.hidden_size = 768\n";
    let file = suite(text);
    let all = expand_file(&file, &Typed::default()).unwrap();
    let costed = priced_suite(&file, &all);
    assert_eq!((costed.job.as_deref(), costed.set[0].value.as_str()), (Some("job.toml"), "h100"));
    let found: Vec<_> = costed.configurations.iter().map(|one| (one.name.as_str(), one.count, one.line)).collect();
    let expected = [
        ("cycles H_cycles=1 L_cycles=1", 3, Some(4)),
        ("cycles H_cycles=1 L_cycles=2", 3, Some(4)),
        ("cycles H_cycles=2 L_cycles=1", 3, Some(4)),
        ("cycles H_cycles=2 L_cycles=2", 3, Some(4)),
        ("wide", 1, Some(9)),
    ];
    assert_eq!(found, expected);
    assert_eq!(costed.configurations[0].changes.len(), 2, "what all share is said once");
    assert_eq!(all[0].changes.len(), 3);
}

#[test]
fn matrix_exclusions_and_typed_lists() {
    let text = format!(
        "{PLAIN}[matrix]\na = [1, 2]\nb = [0.5, 0.25]\n[[exclude]]\na = 2\nb = 0.5\n[[configuration]]\nname = \"p\"\n\
         [[configuration]]\nname = \"q\"\nc = [\"x\", \"y z\"]\na = 7\nexclude = [{{ c = \"y z\", b = 0.25 }}]\n"
    );
    let expected = ["p a=1 b=0.5", "p a=1 b=0.25", "p a=2 b=0.25", "q c=x b=0.5", "q c=x b=0.25", "q c=y z b=0.5"];
    assert_eq!(names(&text, &[], &[]).unwrap(), expected);
    assert_eq!(names(&text, &["b=0.1"], &["q"]).unwrap(), ["q c=x", "q c=y z"]);
    assert_eq!(names(&text, &["b=0.1,0.2", "a=3", "c=x"], &["p", "all"]).unwrap(), ["p b=0.1", "p b=0.2"]);
    assert_eq!(names(&text, &["c='a,b',[1,2]", "a=1", "b=1"], &["p"]).unwrap(), ["p c=a,b", "p c=[1, 2]"]);
    let all = expand_file(&suite(&text), &Typed::default()).unwrap();
    assert_eq!((all[0].seeds.as_slice(), &all[3].parameters["a"]), (&[0, 1, 2][..], &Value::Integer(7)));
}

#[test]
fn groups_are_chosen_and_unknown_ones_refused() {
    let text = format!(
        "{PLAIN}[[configuration]]\nname = \"p\"\ngroup = [\"small\"]\n[[configuration]]\nname = \"q\"\na = [1, 2]\n"
    );
    assert_eq!(names(&text, &[], &["small"]).unwrap(), ["p"]);
    assert_eq!(names(&text, &[], &["q a=2"]).unwrap(), ["q a=2"]);
    let error = names(&text, &[], &["r"]).unwrap_err();
    assert_eq!(
        (error.problem.as_str(), error.hint.as_deref()),
        ("the suite has no `r`", Some("it has p, small, q, and all"))
    );
}

#[test]
fn what_a_file_does_not_have_is_refused_with_the_way_out() {
    let cases = [
        (String::new(), "the suite has no configuration"),
        ("jobs = 1".to_owned(), "a suite has no `jobs`"),
        ("[[configuration]]\ncount = 0".to_owned(), "`count` must be"),
        ("[set]\nseq_len = [1, 2]\n[[configuration]]".to_owned(), "has one value"),
        ("=".to_owned(), "line 1: the suite is no TOML"),
        ("seeds = [1, 1]\n[[configuration]]".to_owned(), "`seeds` is a number"),
        ("seeds = 2\n[[configuration]]\ncount = 2".to_owned(), "`count` beside the suite's `seeds`"),
        ("name = \"a/b\"\n[[configuration]]".to_owned(), "no name of a suite"),
        (format!("{PLAIN}[[configuration]]\nd = 1"), "`d` is no parameter"),
        (
            format!("{PLAIN}[[configuration]]\nname = \"p\"\n[[configuration]]\nname = \"p\""),
            "an earlier one is called so",
        ),
        (format!("{PLAIN}[[configuration]]\na = []"), "`a` has an empty list"),
        (format!("{PLAIN}[run]\nslot = 1\n[[configuration]]"), "[run]: unknown field `slot`"),
        (format!("{PLAIN}[[configuration]]\na = 1\n[[exclude]]\na = 1"), "every combination is excluded"),
    ];
    for (text, expected) in cases {
        let error = names(&text, &[], &[]).unwrap_err();
        assert!(error.problem.contains(expected), "{text}: {error}");
    }
    let many: Vec<String> = (1..=101).map(|n| n.to_string()).collect();
    let list = many.join(", ");
    let error = names(&format!("{PLAIN}[[configuration]]\na = [{list}]\nb = [{list}]"), &[], &[]).unwrap_err();
    assert!(error.problem.contains("10000 configurations"), "{error}");
    assert!(names(PLAIN, &["a"], &[]).unwrap_err().problem.contains("sets nothing"));
    assert!(
        names(&format!("{PLAIN}[[configuration]]"), &["a=1", "a=2"], &[]).unwrap_err().problem.contains("set twice")
    );
}

fn settled(text: &str, words: &[&str]) -> Result<Vec<Configuration>, JobError> {
    let file = SuiteFile::read(text)?;
    let typed = Typed::read(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>(), &[])?;
    let mut all = expand_file(&file, &typed)?;
    settle_all(&mut all, &file, &|changes, key| {
        changes.iter().rfind(|set| set.key == key).map(|set| set.value.clone())
    })?;
    Ok(all)
}

#[test]
fn constraints_hold_or_the_place_is_named() {
    let text = |more: &str| {
        format!(
            "command = [\"t\"]\n[parameters]\nI = 8\nJ = 0\n[[constraint]]\nsum = [\"I\", \"J\"]\n{more}\n[[configuration]]\nname = \"8/0\"\n\
             [[configuration]]\nname = \"4/x\"\nI = 4\nJ = 5\n"
        )
    };
    let error = settled(&text(""), &[]).unwrap_err().problem;
    assert_eq!(error, "line 10, configuration `4/x`: `I` 4 + `J` 5 is 9, the first configuration has 8");
    assert!(settled(&text("is = 8"), &[]).unwrap_err().problem.ends_with("it must be 8"));
    assert!(settled(&text("at_most = 8"), &[]).unwrap_err().problem.ends_with("it must be at most 8"));
    assert!(settled(&text("at_least = 1"), &[]).is_ok());
    assert!(settled(&text(""), &["I=4", "J=4"]).is_ok());
    assert!(settled(&text("product = [\"I\"]"), &[]).unwrap_err().problem.contains("either `sum` or `product`"));
    let unknown = text("").replace("[\"I\", \"J\"]", "[\"I\", \"K\"]");
    assert!(settled(&unknown, &[]).unwrap_err().problem.contains("names `K`"));
}

#[test]
fn rules_follow_the_world_size_but_never_what_was_set() {
    let text = "command = [\"t\"]\n[parameters]\nworld_size = 1\nlearning_rate = 1e-3\n[scaling]\nlearning_rate = \"linear\"\n\
        [matrix]\nworld_size = [1, 4]\n[[configuration]]\nname = \"a\"\n[[configuration]]\nname = \"b\"\nlearning_rate = 2e-3\n";
    let all = settled(text, &[]).unwrap();
    let rates: Vec<f64> = all.iter().map(|one| one.parameters["learning_rate"].as_float().unwrap()).collect();
    assert_eq!(rates, [1e-3, 4e-3, 2e-3, 2e-3]);
    assert!(all[1].rules[0].contains("SGD's convention") && all[3].rules.is_empty());
    let typed = settled(text, &["learning_rate=5e-3"]).unwrap();
    assert!(typed.iter().all(|one| one.parameters["learning_rate"] == Value::Float(5e-3)));
}

fn checked(text: &str, model: &str) -> Result<(), JobError> {
    let file = suite(text);
    priced_suite(&file, &expand_file(&file, &Typed::default()).unwrap()).check(&JobSource::model(model))
}

#[test]
fn a_suite_of_another_model_or_of_unlike_nodes_is_refused_with_its_place() {
    let hrm = "[[configuration]]\nname = \"as it is\"\n\n[[configuration]]\nname = \"deep\"\nmodel.H_cycles = 4\n";
    let error = checked(hrm, "gpt2-medium").unwrap_err();
    assert_eq!(
        error.problem,
        "line 4, configuration `deep`: `model.H_cycles`: the config of a `gpt2` has no such field"
    );
    assert_eq!(checked(hrm, "sapientinc/HRM-checkpoint-ARC-2"), Ok(()));
    let nodes = |external: u64| {
        format!(
            "job = \"gpt2\"\n[set]\ntask = \"swarm\"\n[[configuration]]\nname = \"8/0\"\nswarm.local_questions = 8\n\
             [[configuration]]\nname = \"4/x\"\nswarm.local_questions = 4\nswarm.external_questions = {external}\n"
        )
    };
    assert_eq!(checked(&nodes(4), "gpt2-medium"), Ok(()));
    let error = checked(&nodes(5), "gpt2-medium").unwrap_err().problem;
    let expected =
        "line 7, configuration `4/x`: `swarm.local_questions` 4 + `swarm.external_questions` 5 are 9 questions";
    assert!(error.starts_with(expected), "{error}");
}
